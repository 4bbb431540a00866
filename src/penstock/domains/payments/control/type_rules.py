"""Rules of an item type: whether duplicates are refused, and the calendar of its payments.

A calendar is checked when it is set here. One that was written with SQL is checked when a payment
needs it, and by `penstock doctor`.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import msgspec

from penstock.base.errors import InvalidInput
from penstock.calendar.calendar import Calendar
from penstock.calendar.check import check_values, check_waiting
from penstock.contract import Finding, Resources
from penstock.domains.payments.errors import InvalidCalendar, UnknownItemType, UnknownPaymentRule
from penstock.kernel.audit import audit
from penstock.postgres.pool import Connection, Queries, Row
from penstock.postgres.statement import statement

LOCK_ITEM_TYPE = statement(__package__, "lock_item_type.sql")
READ_PAYMENT_RULE = statement(__package__, "read_payment_rule.sql")
PUT_PAYMENT_RULE = statement(__package__, "put_payment_rule.sql")
REMOVE_PAYMENT_RULE = statement(__package__, "remove_payment_rule.sql")
LIST_PAYMENT_RULES = statement(__package__, "list_payment_rules.sql")

CALENDARS_CACHED = 100  # Decoded; more than there are item types.
CHECKED = "payment calendars"


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeRule:
    """The rule of an item type; without a calendar its payments are executed at any time."""

    item_type: str
    refuses_duplicates: bool = False
    calendar: Calendar | None = None


async def put_rule(db: Connection, rule: TypeRule, *, who: str, now: datetime) -> None:
    """Create or replace the rule of an item type; raises InvalidInput or UnknownItemType."""
    if rule.calendar is not None:
        check_waiting(rule.calendar, now=now)
    async with db.transaction():
        row = await _lock(db, rule.item_type)
        calendar = None if rule.calendar is None else msgspec.json.encode(rule.calendar).decode()
        await db.execute(PUT_PAYMENT_RULE, rule.item_type, rule.refuses_duplicates, calendar)
        await audit(
            db, who, "payment_rule.changed", subject=rule.item_type,
            before=None if row is None else _stored(row),
            after={
                "refuses_duplicates": rule.refuses_duplicates,
                "calendar": msgspec.to_builtins(rule.calendar),
            },
        )  # fmt: skip


async def change_rule(
    db: Connection, item_type: str, *, who: str, now: datetime, **fields: Any
) -> TypeRule:
    """Change fields of the rule of an item type and leave the others; raises as `put_rule` does.

    Raises InvalidCalendar if the calendar that would be left is not valid.
    """
    async with db.transaction():
        row = await _lock(db, item_type)
        kept: dict[str, Any] = {}
        if row is not None:
            kept["refuses_duplicates"] = row["refuses_duplicates"]
        if row is not None and row["calendar"] is not None and "calendar" not in fields:
            kept["calendar"] = read_calendar(item_type, row["calendar"])
        made = TypeRule(item_type=item_type, **kept | fields)
        await put_rule(db, made, who=who, now=now)
        return made


async def remove_rule(db: Connection, item_type: str, *, who: str) -> None:
    """Let an item type have no rule, or raise UnknownPaymentRule."""
    async with db.transaction():
        row = None if "\x00" in item_type else await db.fetchrow(REMOVE_PAYMENT_RULE, item_type)
        if row is None:
            raise UnknownPaymentRule(item_type)
        await audit(db, who, "payment_rule.removed", subject=item_type, before=_stored(row))


async def list_rules(db: Queries) -> list[TypeRule]:
    """Return the rules of the item types that have one; raises InvalidCalendar."""
    return [
        TypeRule(
            item_type=row["item_type"],
            refuses_duplicates=row["refuses_duplicates"],
            calendar=(
                None
                if row["calendar"] is None
                else read_calendar(row["item_type"], row["calendar"])
            ),
        )
        for row in await db.fetch(LIST_PAYMENT_RULES)
    ]


def read_calendar(item_type: str, text: str) -> Calendar:
    """Return the calendar of an item type as it is stored; raises InvalidCalendar."""
    try:
        return _decode(text)
    except InvalidInput as refused:
        raise InvalidCalendar(item_type, refused.field, refused.reason) from refused


async def check_calendars(resources: Resources) -> Finding:
    """Name the calendars that no payment can be scheduled with: for `penstock doctor`."""
    async with resources.pool.acquire() as db:
        rows = await db.fetch(LIST_PAYMENT_RULES)
    stored = {row["item_type"]: row["calendar"] for row in rows if row["calendar"] is not None}
    faults: list[str] = []
    for item_type, text in stored.items():
        try:
            check_waiting(_decode(text), now=datetime.now(UTC))
        except InvalidInput as refused:
            faults.append(f"{item_type}: {refused}")
    if faults:
        return Finding("fail", CHECKED, "; ".join(faults))
    return Finding("ok", CHECKED, ", ".join(stored) or "none")


@lru_cache(maxsize=CALENDARS_CACHED)
def _decode(text: str) -> Calendar:
    """Return a calendar whose values are valid; raises InvalidInput."""
    try:
        calendar = msgspec.json.decode(text, type=Calendar)
    except msgspec.DecodeError as malformed:
        raise InvalidInput("calendar", str(malformed)) from malformed
    check_values(calendar)
    return calendar


async def _lock(db: Connection, item_type: str) -> Row | None:
    """Return the rule of an item type, if it has one, which nobody else changes meanwhile."""
    if "\x00" in item_type or await db.fetchval(LOCK_ITEM_TYPE, item_type) is None:
        raise UnknownItemType(item_type)
    return await db.fetchrow(READ_PAYMENT_RULE, item_type)


def _stored(row: Row) -> dict[str, object]:
    """Return what a row has, for the audit, also if its calendar is not valid."""
    calendar = None if row["calendar"] is None else msgspec.json.decode(row["calendar"])
    return {"refuses_duplicates": row["refuses_duplicates"], "calendar": calendar}
