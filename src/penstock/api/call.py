"""One call of an endpoint, as the API hands it to a handler."""

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Generic, TypeVar

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Generic[P, B]):
    """One authorised and decoded request, in the form that `contract.http` promises to handlers."""

    site: Site
    parameters: P
    body: B
    headers: Mapping[str, str]
    who: str

    def connection(self) -> AbstractAsyncContextManager[Connection]:
        """Lend a connection; that the database may be away is dealt with around every call."""
        return self.site.penstock.pool.acquire(timeout=ACQUIRE_TIMEOUT.total_seconds())
