"""Kinds of failed calls, and the deadline that raises one.

Callers see CallFailed (no complete response; `kind` is a FailureKind) and InvalidInput (a URL or
header was refused before anything was sent). EgressRefused and MalformedResponse are internal.
"""

from contextlib import AbstractAsyncContextManager
from typing import Literal

from penstock.base.errors import CallFailed
from penstock.base.permits import deadline

# After `timeout`, `closed` and `malformed` the server may have processed the request. After the
# others it has not received it.
FailureKind = Literal[
    "refused_address",  # The host resolves to an address or port that is not allowed.
    "bad_name",  # The host name has no address, or the lookup failed.
    "connect",  # Connection refused, or no route to the host.
    "tls",  # The TLS handshake failed, or the certificate is not valid for the host.
    "expired",  # The last instant for the request passed before it was written.
    "timeout",  # The deadline passed, in whichever step.
    "closed",  # The connection was closed before a complete response.
    "malformed",  # Not an HTTP/1 response, or its headers are too large.
]


def failure(kind: FailureKind, reason: str) -> CallFailed:
    """Return the exception to raise. Users see the reason: no secrets, no addresses."""
    return CallFailed(kind, reason)


def within(until: float, doing: str) -> AbstractAsyncContextManager[None]:
    """Raise CallFailed if the block has not finished when the loop's time is `until`."""
    return deadline(until, lambda: failure("timeout", f"timed out while {doing}"))
