"""Redis, as the place where all workers share what they know of an endpoint.

One server, with replicas or not; no Redis Cluster, because one script touches several keys.
"""
