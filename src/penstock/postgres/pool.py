"""Connections to PostgreSQL: types for asyncpg, the connection pool, and lost connections.

asyncpg ships no types. These protocols declare the part that is used, and accept only literal SQL.
"""

import asyncio
import logging
from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import timedelta
from functools import cache, partial
from types import TracebackType
from typing import Any, LiteralString, Protocol, TypeVar, cast
from urllib.parse import parse_qs, urlsplit

import asyncpg

from penstock.base.aio import retry_delays
from penstock.base.errors import BadSetting
from penstock.base.log import Logger, get_logger
from penstock.postgres.errors import DatabaseAway, DatabaseFull, DatabaseReadOnly
from penstock.postgres.statement import statement

KEEP_COMMITS = statement(__package__, "keep_commits.sql")

T = TypeVar("T")

CONNECT_TIMEOUT = timedelta(seconds=10)  # A server in recovery refuses at once.
COMMAND_TIMEOUT = timedelta(seconds=60)  # The slowest statement, a bulk insert, takes 2 s.
STATEMENTS_MAX = 1024  # More than there are: each is prepared once per connection.

# What a connection raises when the server is stopped, stopping, starting or short of something.
# asyncpg says "connection is closed" with its general InterfaceError. A value that does not fit its
# parameter is none: it is asyncpg.DataError, which is a PostgresError.
CONNECTION_LOST: tuple[type[BaseException], ...] = (
    OSError,
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.DatabaseDroppedError,
    asyncpg.IdleSessionTimeoutError,
    asyncpg.InsufficientResourcesError,  # Disk, memory, connections.
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.DeadlockDetectedError,  # Such as with retention, which detaches a day: try again.
    asyncpg.InterfaceError,
    # A query after the server's last message and before the end of the connection.
    asyncpg.InternalClientError,
)

# Errors of a running server for a wrong address or account: waiting does not help.
_REFUSED = (
    asyncpg.ClientConfigurationError,
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
)


# asyncpg logs a traceback per failed connection; Penstock logs one line instead.
logging.getLogger("asyncpg.pool").setLevel(logging.ERROR)


class Row(Protocol):
    """One row of a result, by column name or position."""

    def __getitem__(self, column: str | int, /) -> Any: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Any]: ...
    def get(self, column: str, default: Any = None, /) -> Any: ...
    def keys(self) -> Iterator[str]: ...
    def values(self) -> Iterator[Any]: ...
    def items(self) -> Iterator[tuple[str, Any]]: ...


class Queries(Protocol):
    """What a connection and a pool have in common; `timeout` is in seconds."""

    async def execute(
        self, query: LiteralString, *args: Any, timeout: float | None = None
    ) -> str: ...
    async def executemany(
        self, command: LiteralString, args: Iterable[Sequence[Any]], *, timeout: float | None = None
    ) -> None: ...
    async def fetch(
        self, query: LiteralString, *args: Any, timeout: float | None = None
    ) -> list[Row]: ...
    async def fetchrow(
        self, query: LiteralString, *args: Any, timeout: float | None = None
    ) -> Row | None: ...
    async def fetchval(
        self, query: LiteralString, *args: Any, column: int = 0, timeout: float | None = None
    ) -> Any: ...
    async def copy_records_to_table(
        self,
        table_name: str,
        *,
        records: Iterable[Sequence[Any]],
        columns: Collection[str] | None = None,
        schema_name: str | None = None,
        timeout: float | None = None,
    ) -> str: ...


class Transaction(Protocol):
    """A transaction or savepoint, used with `async with` or by hand."""

    async def start(self) -> None: ...
    async def commit(self) -> None: ...
    async def rollback(self) -> None: ...
    async def __aenter__(self) -> object: ...
    async def __aexit__(self, *exc_info: object) -> object: ...


class PreparedStatement(Protocol):
    """A prepared statement."""

    async def fetch(self, *args: Any, timeout: float | None = None) -> list[Row]: ...
    async def fetchrow(self, *args: Any, timeout: float | None = None) -> Row | None: ...
    async def fetchval(self, *args: Any, column: int = 0, timeout: float | None = None) -> Any: ...


class Connection(Queries, Protocol):
    """One connection, separate or from a pool."""

    def transaction(
        self, *, isolation: str | None = None, readonly: bool = False, deferrable: bool = False
    ) -> Transaction: ...
    def is_in_transaction(self) -> bool: ...
    def is_closed(self) -> bool: ...
    async def prepare(
        self, query: LiteralString, *, timeout: float | None = None
    ) -> PreparedStatement: ...
    async def add_listener(self, channel: str, callback: Callable[..., Any]) -> None: ...
    def add_termination_listener(self, callback: Callable[..., Any]) -> None: ...
    async def close(self, *, timeout: float | None = None) -> None: ...
    def terminate(self) -> None: ...


class Pool(Queries, Protocol):
    """A connection pool; `async with pool.acquire() as connection`."""

    def acquire(
        self, *, timeout: float | None = None
    ) -> AbstractAsyncContextManager[Connection]: ...
    def get_size(self) -> int: ...
    def get_idle_size(self) -> int: ...
    async def close(self) -> None: ...
    def terminate(self) -> None: ...


class _Connection(asyncpg.Connection):
    """A pooled connection without reset: Penstock leaves no session state behind."""

    def get_reset_query(self) -> str:
        """Return nothing to run on release: asyncpg's own reset costs a round trip per use."""
        return ""


async def open_pool(dsn: str, *, min_size: int = 5, max_size: int = 20) -> Pool:
    """Open a pool; raises DatabaseAway or BadSetting. jsonb stays text: callers decode it once.

    Commits wait for the disk also where the server's setting says otherwise.
    """
    _check_port(dsn)
    with database_away():
        return await _create_pool(
            dsn,
            min_size=min_size,
            max_size=max_size,
            command_timeout=COMMAND_TIMEOUT.total_seconds(),
            max_inactive_connection_lifetime=0,
            connection_class=_Connection,
            init=partial(_keep_commits, address=address(dsn)),
            **_SESSION,
        )


async def connect(dsn: str) -> Connection:
    """Open one connection without a pool; raises DatabaseAway or BadSetting."""
    _check_port(dsn)
    with database_away():
        connection = await _connect(dsn, **_SESSION)
        try:
            await connection.fetchval(KEEP_COMMITS)
        except BaseException:
            # The server may stop right after it has accepted the connection.
            connection.terminate()
            raise
        return connection


async def _keep_commits(connection: Connection, *, address: str) -> None:
    if await connection.fetchval(KEEP_COMMITS) is not None:
        _warn_of_commits(address)


@cache
def _warn_of_commits(address: str) -> None:
    """Log it once in a process, not for each connection."""
    log = get_logger()
    log.warning("database.corrected", address=address, setting="synchronous_commit")


_create_pool = cast("Callable[..., Awaitable[Pool]]", asyncpg.create_pool)
_connect = cast("Callable[..., Awaitable[Connection]]", asyncpg.connect)
_SESSION: Mapping[str, Any] = {
    "timeout": CONNECT_TIMEOUT.total_seconds(),
    "statement_cache_size": STATEMENTS_MAX,
    "max_cached_statement_lifetime": 0,
    # The statements are short: compiling one costs more than running it.
    "server_settings": {
        "application_name": "penstock",
        "jit": "off",
        # Planning a claim takes longer than running it for one item; a plan is made once.
        "plan_cache_mode": "force_generic_plan",
    },
}


def _check_port(dsn: str) -> None:
    """Raise BadSetting for a port that is not a number: asyncpg raises ValueError."""
    try:
        _ = urlsplit(dsn).port
    except ValueError as exc:
        raise BadSetting("PENSTOCK_DATABASE_URL", _one_line(exc)) from exc


async def keep_trying(work: Callable[[], Awaitable[T]], *, dsn: str, log: Logger) -> T:
    """Await `work()`, which must be repeatable, until the database is available.

    Logs one line per failed try. Raises BadSetting when a running server refuses the connection,
    because waiting does not help then.
    """
    delays = retry_delays()
    tries = 0
    while True:
        tries += 1
        try:
            with database_away():
                return await work()
        except DatabaseAway as exc:
            delay = next(delays)
            log.warning(
                "database.awaited",
                address=address(dsn),
                reason=exc.reason,
                retry_in_seconds=round(delay, 1),
                **{"try": tries},
            )
            await asyncio.sleep(delay)


class _Translated:
    """Stateless, so that one object serves all; a generator would cost a microsecond per call."""

    def __enter__(self) -> None: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        failure: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if failure is None:
            return
        if isinstance(failure, _REFUSED):
            raise BadSetting("PENSTOCK_DATABASE_URL", _one_line(failure)) from failure
        if isinstance(failure, asyncpg.DiskFullError):
            raise DatabaseFull(_one_line(failure)) from failure
        if isinstance(failure, asyncpg.ReadOnlySQLTransactionError):
            raise DatabaseReadOnly(_one_line(failure)) from failure
        if isinstance(failure, CONNECTION_LOST):
            raise DatabaseAway(_one_line(failure)) from failure


_TRANSLATED = _Translated()


def database_away() -> AbstractContextManager[None]:
    """Translate what asyncpg raises for an unavailable database into PenstockErrors."""
    return _TRANSLATED


def address(dsn: str) -> str:
    """Return host, port and database of a DSN, never its user or password."""
    parts = urlsplit(dsn)
    host = parts.hostname or parse_qs(parts.query).get("host", ["local socket"])[0]
    try:
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        port = ":?"
    return f"{host}{port}{parts.path}"


def _one_line(failure: BaseException) -> str:
    return (str(failure) or type(failure).__name__).splitlines()[0]
