"""Limits on calls per key: breaker, cooldown, rate and semaphore.

`gate` has the types, `policy` and `breaker` the decisions, `local` the gate of one process.
A gate that many processes share applies the same rules elsewhere and passes the same tests.
"""
