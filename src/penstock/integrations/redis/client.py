"""A connection to Redis that fails fast, and the one place where its failures are translated."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, cast

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from penstock.base.errors import BadSetting

# RuntimeError: uvloop's, for a connection that is being closed while we write.
FAILURES = (RedisError, OSError, RuntimeError)


@dataclass(eq=False)
class RedisAway(Exception):
    """Redis did not answer, or not as it should; `reason` is the failure's class."""

    reason: str

    def __str__(self) -> str:
        return f"redis is away: {self.reason}"


class RedisSlow(RedisAway):
    """Redis did not answer in time. What was asked for may be done yet."""


class Pipeline(Protocol):
    """Commands that are sent together. The vendor's own types are mostly unknown."""

    def execute_command(self, *parts: str | int | bytes) -> object: ...
    async def execute(self, raise_on_error: bool = True) -> list[Any]: ...  # noqa: FBT001, FBT002


class Client(Protocol):
    """What we use of the vendor's client."""

    def pipeline(self, *, transaction: bool) -> Pipeline: ...
    async def execute_command(self, *parts: str | int | bytes) -> Any: ...
    async def aclose(self) -> None: ...


def connect(url: str) -> Client:
    """Return a client, which connects when it is first used; to be closed with `aclose`.

    Raises BadSetting for an address that is none.
    """
    try:
        made = cast("Any", Redis).from_url(
            url,
            # Who waits has a time limit of his own, and a script must not be run twice.
            retry=Retry(NoBackoff(), 0),
            socket_timeout=None,
            socket_connect_timeout=None,
            # With the newer protocol a connection that the server has closed is not noticed
            # before it is used.
            protocol=2,
        )
    except ValueError as refused:
        raise BadSetting("PENSTOCK_REDIS_URL", "is no address of a Redis") from refused
    return cast("Client", made)


@contextmanager
def translated() -> Generator[None]:
    """Raise RedisAway for whatever goes wrong between us and Redis."""
    try:
        yield
    except TimeoutError as slow:
        raise RedisSlow(type(slow).__qualname__) from slow
    except FAILURES as failure:
        raise RedisAway(type(failure).__qualname__) from failure
