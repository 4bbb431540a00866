"""Redis, where all workers share the breaker, cooldown, rate and semaphore of an endpoint.

One server, with replicas or not; no Redis Cluster, because one script touches several keys.
"""
