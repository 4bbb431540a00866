"""How much a client takes upon itself: connections, time between requests, size of answers."""

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The defaults suit one process with the usual 1,024 file descriptors."""

    # Open at once, idle ones included. Who comes when all are busy waits in line.
    connections_max: int = 512
    # A busy receiver's connections should all be kept; those that nobody uses grow old.
    idle_per_origin_max: int = 512
    # Common servers close after 60 to 75 s; who closes first knows that nothing was in flight.
    idle_time: timedelta = timedelta(seconds=20)
    # A kept connection stays with its address; after this time a change in DNS is seen.
    lifetime: timedelta = timedelta(minutes=5)
    # How long an answer from DNS is believed. A connection goes to the checked address anyway.
    lookup_ttl: timedelta = timedelta(seconds=10)
    # Twice what Node takes; heads of sane servers have less than one.
    head_bytes_max: int = 32 * 1024
    # More of a response than anybody reads in a log of attempts.
    body_bytes_max: int = 64 * 1024
