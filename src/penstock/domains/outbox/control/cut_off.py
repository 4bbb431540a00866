"""When rails are open: hours, bank holidays and the daily cut-off, by the shared calendar.

An instruction for a closed rail waits until it opens; that costs no attempt, and it stays the head.
After a change of the calendar it is looked at again.
"""

from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache

import msgspec

from penstock.calendar.calendar import Calendar
from penstock.calendar.check import OPEN_WITHIN, check_waiting
from penstock.calendar.periods import next_before_cut_off
from penstock.domains.outbox.control.control_scope import check_known, check_scope
from penstock.domains.outbox.errors import UnknownCalendar
from penstock.domains.outbox.lanes import LANE
from penstock.kernel.audit import audit
from penstock.postgres.pool import Connection, Queries
from penstock.postgres.statement import statement

PUT_CALENDAR = statement(__package__, "put_calendar.sql")
REMOVE_CALENDAR = statement(__package__, "remove_calendar.sql")
LIST_CALENDARS = statement(__package__, "list_calendars.sql")
HASTEN_CLOSED = statement(__package__, "hasten_closed.sql")

# How the reason begins of an instruction that waits for its rail to open.
CLOSED_UNTIL = "the rail is closed until "
CALENDARS_CACHED = 100  # Decoded; more than there are rails.


@dataclass(frozen=True, slots=True, kw_only=True)
class RailCalendar:
    """When a rail is open."""

    rail_type: str
    calendar: Calendar


async def put_calendar(
    db: Connection, rail_type: str, calendar: Calendar, *, who: str, now: datetime
) -> None:
    """Set when a rail is open; raises InvalidInput with the field.

    What waits for the rail to open is looked at now, and waits on if it is still closed.
    """
    check_scope("rail", rail_type)
    await check_known(db, "rail", rail_type, field="rail_type")
    check_waiting(calendar, now=now)
    encoded = msgspec.json.encode(calendar).decode()
    async with db.transaction():
        await db.execute(PUT_CALENDAR, rail_type, encoded)
        await db.execute(HASTEN_CLOSED, LANE, rail_type, CLOSED_UNTIL)
        after = msgspec.to_builtins(calendar)
        await audit(db, who, "outbox_calendar.changed", subject=rail_type, after=after)


async def remove_calendar(db: Connection, rail_type: str, *, who: str) -> None:
    """Let a rail be open always, or raise UnknownCalendar; what waits for it leaves."""
    async with db.transaction():
        if not await db.fetchval(REMOVE_CALENDAR, rail_type):
            raise UnknownCalendar(rail_type)
        await db.execute(HASTEN_CLOSED, LANE, rail_type, CLOSED_UNTIL)
        await audit(db, who, "outbox_calendar.removed", subject=rail_type)


async def list_calendars(db: Queries) -> list[RailCalendar]:
    """Return the calendars of the rails that have one."""
    return [
        RailCalendar(rail_type=row["rail_type"], calendar=_decode(row["calendar"]))
        for row in await db.fetch(LIST_CALENDARS)
    ]


def next_send_at(calendar: Calendar, now: datetime) -> datetime | None:
    """Return the first instant from now on that is open and before its day's cut-off."""
    return next_before_cut_off(calendar, now, now + OPEN_WITHIN)


@lru_cache(maxsize=CALENDARS_CACHED)
def _decode(text: str) -> Calendar:
    return msgspec.json.decode(text, type=Calendar)
