"""Run one of our statements on a connection that is the caller's: asyncpg, psycopg 3, SQLAlchemy.

None of them is imported here: a connection is known by the package it comes from.
"""

import json
import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, LiteralString

from penstock.base.errors import (
    InvalidInput,
    KeyConflict,
    PenstockError,
    SlotRefused,
    UnknownLane,
)

DRIVERS = ("asyncpg", "psycopg", "sqlalchemy")


async def fetch_row(connection: object, query: LiteralString, arguments: Sequence[Any]) -> Any:
    """Return the first row; errors of our SQL functions come out as our errors."""
    found: Any = connection
    with translated(arguments[0]):
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


def fetch_row_blocking(connection: object, query: LiteralString, arguments: Sequence[Any]) -> Any:
    """Do as `fetch_row` on a blocking connection."""
    found: Any = connection
    with translated(arguments[0]):
        match package(connection):
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
    from sqlalchemy import text  # noqa: PLC0415  Only who hands us its connection has SQLAlchemy.

    return text(re.sub(r"\$(\d+)", r":p\1", query))


@contextmanager
def translated(lane: str) -> Generator[None]:
    """Turn what our SQL functions raise, through any driver, into our own errors."""
    try:
        yield
    except PenstockError:
        raise
    except Exception as failure:
        ours = _ours(lane, failure)
        if ours is None:
            raise
        raise ours from failure


def _ours(lane: str, failure: BaseException) -> PenstockError | None:
    """Return our error for a driver's, or None; SQLAlchemy keeps the driver's own in `orig`."""
    raised: Any = getattr(failure, "orig", None) or failure
    match getattr(raised, "sqlstate", None):
        case "PS404":
            return UnknownLane(lane)
        case "PS422":
            refusal = json.loads(_detail(raised))
            return SlotRefused(refusal["pool"], refusal["reason"])
        case "PS413":
            return InvalidInput("payload", _message(raised))
        case "PS409":
            clash = json.loads(_detail(raised))
            return KeyConflict(
                lane, clash["key"], clash["item_id"], clash["stored_hash"], clash["given_hash"]
            )
        case "23514" if "not_after_follows_due_at" in _message(raised):
            return InvalidInput("not_after", "is before the item is due")
        case "22021":
            return UnknownLane(lane)  # A NUL: keys and payloads were searched for one before.
        case str() as state if state.startswith("22"):
            # Everything else was checked before: only a payload can hold what PostgreSQL cannot.
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
    return InvalidInput("connection", f"must be of asyncpg, psycopg or SQLAlchemy, not of {name}")
