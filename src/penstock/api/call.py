"""One call of an endpoint, as the API hands it to a handler."""

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Generic, TypeVar

from msgspec import Struct
from starlette.requests import Request

from penstock.api.auth import Door
from penstock.api.metrics import Depths
from penstock.app import Penstock
from penstock.contract.http import ACQUIRE_TIMEOUT
from penstock.postgres.pool import Connection

P = TypeVar("P")
B = TypeVar("B")


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What all calls share."""

    penstock: Penstock
    door: Door
    depths: Depths
    openapi: bytes
    docs: bytes


class Call(Struct, Generic[P, B], frozen=True, kw_only=True):
    """One authorised and decoded request, in the form that `contract.http` promises to handlers."""

    site: Site
    request: Request
    parameters: P
    body: B
    who: str

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers, by names without regard to case."""
        return self.request.headers

    def connection(self) -> AbstractAsyncContextManager[Connection]:
        """Lend a connection; that the database may be away is dealt with around every call."""
        return self.site.penstock.pool.acquire(timeout=ACQUIRE_TIMEOUT.total_seconds())
