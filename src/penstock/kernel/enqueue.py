"""Accept items, in a transaction of the pool or of the caller, with the SQL function."""

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from itertools import islice
from typing import Any, cast

import msgspec

from penstock.base.aio import meanwhile
from penstock.base.errors import InvalidInput
from penstock.kernel import driver, payload
from penstock.kernel.item import Accepted, ItemId, NewItem
from penstock.kernel.limit_key import NAME
from penstock.postgres.pool import Connection
from penstock.postgres.statement import statement

ENQUEUE = statement(__package__, "enqueue.sql")
CREATE_STAGING = statement(__package__, "create_staging.sql")
ENQUEUE_STAGED = statement(__package__, "enqueue_staged.sql")
CLEAR_STAGING = statement(__package__, "clear_staging.sql")

CHUNK = 5_000  # Items; 1,000 is as fast, and 20,000 only costs memory.
KEY_LENGTH_MAX = 255
LIMIT_KEYS_MAX = 8  # Of one item: each is one more decision before its start.
NAME_RULE = (
    "must have names of 1 to 63 of a-z, 0-9, dash and underscore, beginning with a letter or digit"
)
DUE_FROM = datetime(1970, 1, 1, tzinfo=UTC)
DUE_UNTIL = datetime(2200, 1, 1, tzinfo=UTC)

STAGED_COLUMNS = ("index", "payload", "key", "due_at", "order_key", "not_after", "limit_keys")


async def enqueue(
    connection: object,
    lane: str,
    item: NewItem,
    *,
    payload_type: type[Any] | None = None,
    at: datetime | None = None,
    owner: str | None = None,
) -> Accepted:
    """Accept one item in the transaction of `connection` (asyncpg, psycopg 3 or SQLAlchemy).

    The same key again returns the first item; with another payload it raises KeyConflict. A domain
    passes its name as `owner` for a lane of its own; others get LaneIsOwned there.
    """
    arguments = (lane, *_columns(item, payload_type), at, owner)
    return _accepted(await driver.fetch_row(connection, ENQUEUE, arguments))


def enqueue_blocking(
    connection: object,
    lane: str,
    item: NewItem,
    *,
    payload_type: type[Any] | None = None,
    at: datetime | None = None,
    owner: str | None = None,
) -> Accepted:
    """Like `enqueue`, on a blocking connection (psycopg 3, SQLAlchemy or Django)."""
    arguments = (lane, *_columns(item, payload_type), at, owner)
    return _accepted(driver.fetch_row_blocking(connection, ENQUEUE, arguments))


async def enqueue_many(
    db: Connection,
    lane: str,
    items: Iterable[NewItem],
    *,
    payload_type: type[Any] | None = None,
    at: datetime | None = None,
    owner: str | None = None,
) -> list[Accepted]:
    """Accept many items with COPY, all or none; the answers are in the order of the items."""
    accepted: list[Accepted] = []
    with driver.translated(lane):
        async with db.transaction():
            await db.execute(CREATE_STAGING)
            chunks = _staged_chunks(items, payload_type)
            chunk = next(chunks, None)
            while chunk is not None:
                await db.copy_records_to_table(
                    "penstock_staged", records=chunk, columns=STAGED_COLUMNS, schema_name="pg_temp"
                )
                answer = db.fetch(ENQUEUE_STAGED, lane, at, owner)
                rows, chunk = await meanwhile(answer, lambda: next(chunks, None))
                accepted += map(_accepted, rows)
                await db.execute(CLEAR_STAGING)
    return accepted


def _columns(item: NewItem, payload_type: type[Any] | None) -> tuple[Any, ...]:
    text = payload.encode(item.payload, payload_type)
    check(item)
    limit_keys = msgspec.json.encode(item.limit_keys).decode() if item.limit_keys else None
    return (text, item.key, item.due_at, item.order_key, item.not_after, limit_keys)


def _staged_chunks(
    items: Iterable[NewItem], payload_type: type[Any] | None
) -> Iterator[list[tuple[Any, ...]]]:
    numbered = enumerate(items)
    while chunk := [_staged(index, item, payload_type) for index, item in islice(numbered, CHUNK)]:
        yield chunk


def _staged(index: int, item: NewItem, payload_type: type[Any] | None) -> tuple[Any, ...]:
    try:
        return (index, *_columns(item, payload_type))
    except InvalidInput as refused:
        raise InvalidInput(f"items[{index}].{refused.field}", refused.reason) from refused


def check(item: NewItem) -> None:
    """Raise InvalidInput for a field, other than the payload, that the database would refuse."""
    check_key("key", item.key)
    check_key("order_key", item.order_key)
    check_instant("due_at", item.due_at)
    check_instant("not_after", item.not_after)
    if item.not_after is not None and item.not_after < (item.due_at or item.not_after):
        raise InvalidInput("not_after", "is before due_at")
    if item.limit_keys is not None:
        _check_limit_keys(item.limit_keys)


def check_instant(field: str, instant: datetime | None) -> None:
    """Raise InvalidInput for an instant out of range; None is allowed."""
    if instant is None:
        return
    if not isinstance(instant, datetime):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInput(field, "must be an instant")
    if instant.tzinfo is None:
        raise InvalidInput(field, "must have a time zone")
    if not DUE_FROM <= instant < DUE_UNTIL:
        raise InvalidInput(field, "must be from the year 1970 to 2199")


def _check_limit_keys(keys: object) -> None:
    if not isinstance(keys, Mapping):
        raise InvalidInput("limit_keys", "must be names with values")
    given = cast("Mapping[object, object]", keys)
    if len(given) > LIMIT_KEYS_MAX:
        raise InvalidInput("limit_keys", f"must be at most {LIMIT_KEYS_MAX}, are {len(given)}")
    for name, value in given.items():
        if not isinstance(name, str) or re.fullmatch(NAME, name) is None:
            raise InvalidInput("limit_keys", NAME_RULE)
        check_key(f"limit_keys.{name}", cast("str", "" if value is None else value))


def check_key(field: str, key: str | None) -> None:
    """Raise InvalidInput for a key that the database would refuse; None is allowed."""
    if key is None:
        return
    if not isinstance(key, str):  # pyright: ignore[reportUnnecessaryIsInstance]  Comes from callers.
        raise InvalidInput(field, "must be text")
    if not 1 <= len(key) <= KEY_LENGTH_MAX:
        raise InvalidInput(field, f"must have 1 to {KEY_LENGTH_MAX} characters, has {len(key)}")
    if "\x00" in key:
        raise InvalidInput(field, "holds a NUL character")
    if not key.isascii() and any("\ud800" <= character <= "\udfff" for character in key):
        raise InvalidInput(field, "holds a lone surrogate")


def _accepted(row: Any) -> Accepted:
    return Accepted(id=ItemId(row[0]), is_new=row[1])
