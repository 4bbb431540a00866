"""Run a kernel statement on the caller's connection: asyncpg, psycopg 3, SQLAlchemy or Django.

None of them is imported here: a connection is recognised by the package of its class.
"""

import json
import re
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import cache
from typing import Any, LiteralString

from penstock.base.errors import InvalidInput, PenstockError
from penstock.kernel.errors import KeyConflict, LaneIsOwned, SlotRefused, UnknownLane

DRIVERS = ("asyncpg", "django", "psycopg", "sqlalchemy")


async def fetch_row(
    connection: object,
    query: LiteralString,
    arguments: Sequence[Any],
    *,
    lane: str | None = None,
) -> Any:
    """Return the first row; errors of the SQL functions are raised as PenstockError.

    `lane` is the one that they name, if it is not the first argument.
    """
    found: Any = connection
    with translated(arguments[0] if lane is None else lane):
        match package(connection):
            case "asyncpg":
                return await found.fetchrow(query, *arguments)
            case "psycopg":
                cursor = await found.execute(percent_form(query), numbered(arguments))
                return await cursor.fetchone()
            case "sqlalchemy":
                result = await found.execute(named_form(query), numbered(arguments))
                return result.first()
            case other:
                raise _unsupported(other)


@asynccontextmanager
async def nested(connection: object) -> AsyncGenerator[None]:
    """Undo what the body did if it raises, and nothing that the caller's transaction did before.

    Without a transaction of the caller, asyncpg gets one of its own.
    """
    found: Any = connection
    match package(connection):
        case "asyncpg":
            opened = found.transaction()
        case "psycopg":
            # It begins a transaction with the first statement; before, it would commit its own.
            await found.execute("SELECT 1")
            opened = found.transaction()
        case "sqlalchemy":
            opened = found.begin_nested()
        case other:
            raise _unsupported(other)
    async with opened:
        yield


def fetch_row_blocking(
    connection: object,
    query: LiteralString,
    arguments: Sequence[Any],
    *,
    lane: str | None = None,
) -> Any:
    """Like `fetch_row`, on a blocking connection; Django's is `django.db.connection`."""
    found: Any = connection
    with translated(arguments[0] if lane is None else lane):
        match package(connection):
            case "django":
                with found.cursor() as cursor:
                    cursor.execute(percent_form(query), numbered(arguments))
                    return cursor.fetchone()
            case "psycopg":
                return found.execute(percent_form(query), numbered(arguments)).fetchone()
            case "sqlalchemy":
                return found.execute(named_form(query), numbered(arguments)).first()
            case other:
                raise _unsupported(other)


def package(connection: object) -> str:
    """Return the top package of the connection's class, or of the class that it is derived from."""
    packages = [base.__module__.partition(".")[0] for base in type(connection).__mro__]
    return next((name for name in packages if name in DRIVERS), packages[0])


def numbered(arguments: Sequence[Any]) -> dict[str, Any]:
    """Return positional arguments under the names that the two forms below give them."""
    return {f"p{number}": value for number, value in enumerate(arguments, start=1)}


@cache
def percent_form(query: LiteralString) -> str:
    """Rewrite $1 as %(p1)s, which psycopg wants."""
    return re.sub(r"\$(\d+)", r"%(p\1)s", query.replace("%", "%%"))


@cache
def named_form(query: LiteralString) -> Any:
    """Rewrite $1 as :p1 in a SQLAlchemy text, which would read :: as a name too."""
    from sqlalchemy import text  # noqa: PLC0415  Optional dependency.

    return text(re.sub(r"\$(\d+)", r":p\1", query))


@contextmanager
def translated(lane: str) -> Generator[None]:
    """Translate the errors of the SQL functions, as any driver raises them, into PenstockError."""
    try:
        yield
    except PenstockError:
        raise
    except Exception as failure:
        error = _translate(lane, failure)
        if error is None:
            raise
        raise error from failure


def _translate(lane: str, failure: BaseException) -> PenstockError | None:
    """Return the PenstockError for a driver's error, or None; SQLAlchemy and Django wrap it."""
    raised: Any = getattr(failure, "orig", None) or failure
    if type(failure).__module__ == "django.db.utils":
        raised = failure.__cause__
    match getattr(raised, "sqlstate", None):
        case "PS404":
            return UnknownLane(lane)
        case "PS403":
            return LaneIsOwned(**json.loads(_detail(raised)))
        case "PS422":
            refusal = json.loads(_detail(raised))
            return SlotRefused(refusal["pool"], refusal["reason"])
        case "PS413":
            return InvalidInput("payload", _message(raised))
        case "PS409":
            clash = json.loads(_detail(raised))
            return KeyConflict(lane=lane, **clash)
        case "23514" if "not_after_follows_due_at" in _message(raised):
            return InvalidInput("not_after", "is before the item is due")
        case "22021":
            return UnknownLane(lane)  # A NUL: keys and payloads are already checked for it.
        case str() as state if state.startswith("22"):
            # Other fields are already checked: only a payload can contain what PostgreSQL refuses.
            return InvalidInput("payload", _message(raised))
        case _:
            return None


def _message(raised: Any) -> str:
    diagnostics = getattr(raised, "diag", None)
    return str(diagnostics.message_primary if diagnostics else raised).splitlines()[0]


def _detail(raised: Any) -> str:
    diagnostics = getattr(raised, "diag", None)
    if diagnostics is not None:
        return str(diagnostics.message_detail)
    return str(getattr(raised, "detail", None) or getattr(raised.__cause__, "detail", None))


def _unsupported(name: str) -> InvalidInput:
    return InvalidInput(
        "connection", f"must be of asyncpg, psycopg, SQLAlchemy or (blocking) Django, not of {name}"
    )
