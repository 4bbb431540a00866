"""What holds a call to somebody else's endpoint back: breaker, rest, rate and semaphore, per key.

`gate` has the words, `policy` and `breaker` the decisions, `local` the gate of one process.
A gate that many processes share keeps the same rules elsewhere and passes the same tests.
"""
