"""One call of an endpoint, as handlers get it."""

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import timedelta
from time import monotonic
from typing import Generic, TypeVar

from msgspec import Struct
from starlette.requests import Request

from penstock.app import Penstock
from penstock.contract.http import ACQUIRE_TIMEOUT
from penstock.postgres.pool import Connection
from penstock.web.authenticate import Authenticator

P = TypeVar("P")
B = TypeVar("B")


# Without requests nothing is written, and then the process must become ready by itself.
FULL_FOR = timedelta(seconds=10)


@dataclass(slots=True)
class DiskStatus:
    """Whether the database's disk was full when this process last wrote something."""

    _full_until: float = float("-inf")

    def note(self, *, is_full: bool) -> None:
        """Note how a write ended."""
        self._full_until = monotonic() + FULL_FOR.total_seconds() if is_full else float("-inf")

    def is_full(self) -> bool:
        """Return whether it is known to be full; a failed write is ignored after 10 seconds."""
        return monotonic() < self._full_until


@dataclass(frozen=True, slots=True, kw_only=True)
class WebContext:
    """What all calls share."""

    penstock: Penstock
    authenticator: Authenticator
    disk: DiskStatus = field(default_factory=DiskStatus)


class WebCall(Struct, Generic[P, B], frozen=True, kw_only=True):
    """One authorised and decoded request: the Call of `contract.http`, with what calls share."""

    context: WebContext
    request: Request
    parameters: P
    body: B
    who: str

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers; names are case-insensitive."""
        return self.request.headers

    def connection(self) -> AbstractAsyncContextManager[Connection]:
        """Lend a connection; what it raises is translated around every call."""
        return self.context.penstock.pool.acquire(timeout=ACQUIRE_TIMEOUT.total_seconds())
