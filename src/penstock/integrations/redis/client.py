"""A Redis connection that fails fast, and the one place that translates its failures."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, cast

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from penstock.base.errors import BadSetting

# uvloop raises RuntimeError when a connection is closed during a write.
FAILURES = (RedisError, OSError, RuntimeError)


@dataclass(eq=False)
class RedisUnavailable(Exception):
    """Redis did not answer, or answered with an error; `reason` is the class of the failure."""

    reason: str

    def __str__(self) -> str:
        return f"redis is unavailable: {self.reason}"


class RedisTimeout(RedisUnavailable):
    """Redis did not answer in time. It may still execute the command."""


class Pipeline(Protocol):
    """Commands that are sent together. The client library's own types are mostly unknown."""

    def execute_command(self, *parts: str | int | bytes) -> object: ...
    async def execute(self, raise_on_error: bool = True) -> list[Any]: ...  # noqa: FBT001, FBT002


class Client(Protocol):
    """The part of the client library that is used."""

    def pipeline(self, *, transaction: bool) -> Pipeline: ...
    async def execute_command(self, *parts: str | int | bytes) -> Any: ...
    async def aclose(self) -> None: ...


def connect(url: str) -> Client:
    """Return a client that connects on first use; close it with `aclose`.

    Raises BadSetting for an invalid address.
    """
    try:
        client = cast("Any", Redis).from_url(
            url,
            # Each caller has its own timeout, and a script must not run twice.
            retry=Retry(NoBackoff(), 0),
            socket_timeout=None,
            socket_connect_timeout=None,
            # With protocol 3, a connection that the server has closed is only noticed when used.
            protocol=2,
        )
    except ValueError as exc:
        raise BadSetting("PENSTOCK_REDIS_URL", "is not a valid Redis address") from exc
    return cast("Client", client)


@contextmanager
def translated() -> Generator[None]:
    """Raise RedisUnavailable for any failure of the connection or of Redis."""
    try:
        yield
    except TimeoutError as slow:
        raise RedisTimeout(type(slow).__qualname__) from slow
    except FAILURES as failure:
        raise RedisUnavailable(type(failure).__qualname__) from failure
