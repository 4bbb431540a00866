"""Limits on calls to a subscriber's endpoint: breaker, cooldown, rate and semaphore, per key.

`gate` has the types, `policy` and `breaker` the decisions, `local` the gate of one process.
A gate that many processes share applies the same rules elsewhere and passes the same tests.
"""
