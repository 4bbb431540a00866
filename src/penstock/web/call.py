"""One call of an endpoint, as handlers get it."""

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Generic, TypeVar

from msgspec import Struct
from starlette.requests import Request

from penstock.app import Penstock
from penstock.contract.http import ACQUIRE_TIMEOUT
from penstock.postgres.pool import Connection
from penstock.web.authenticate import Authenticator

P = TypeVar("P")
B = TypeVar("B")


@dataclass(frozen=True, slots=True, kw_only=True)
class WebContext:
    """What all calls share."""

    penstock: Penstock
    authenticator: Authenticator


class Call(Struct, Generic[P, B], frozen=True, kw_only=True):
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
