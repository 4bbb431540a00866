"""Redis, where all workers share the breaker, cooldown, rate and semaphore of a key.

One server, with replicas or not; no Redis Cluster, because one script touches several keys.
"""
