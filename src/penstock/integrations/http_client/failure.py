"""How a request can fail: in one exception, with a stable word; and deadlines that raise it."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Literal

from penstock.base.errors import CallFailed

# Whether the other side has got the request and acted on it, nobody knows after a timeout and what
# stands below it; it has not after the others.
FailureKind = Literal[
    "refused_address",  # The host leads to an address or port that may not be reached.
    "bad_name",  # The host's name has no address, or nobody could tell.
    "connect",  # Nobody listens there, or the network does not lead there.
    "tls",  # No agreement on TLS, or the certificate is not the host's.
    "timeout",  # The deadline came first, whatever was going on.
    "closed",  # The connection ended before a full response.
    "malformed",  # What came back is not an HTTP/1 response, or one with too large a head.
]


def failure(kind: FailureKind, reason: str) -> CallFailed:
    """Return what to raise. Strangers may read the reason: no secrets, no addresses of ours."""
    return CallFailed(kind, reason)


@asynccontextmanager
async def within(until: float, doing: str) -> AsyncGenerator[None]:
    """Raise CallFailed if the block is not done when the loop's time is `until`."""
    limit = asyncio.timeout_at(until)
    try:
        async with limit:
            yield
    except TimeoutError as over:
        # The kernel gives up on a connection with a TimeoutError too; that one is not ours.
        if not limit.expired():
            raise
        raise failure("timeout", f"the time was over while {doing}") from over
