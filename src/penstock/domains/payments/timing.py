"""When a payment is executed: at the instant that was asked for, or at the next opening after it.

The calendar of an item type has opening hours, holidays and a cut-off. If the lane has a slot pool,
its slot decides when the payment is enqueued.
"""

from collections.abc import Sequence
from datetime import datetime

from msgspec.structs import replace

from penstock.base.errors import InvalidInput
from penstock.calendar.calendar import Calendar
from penstock.calendar.check import OPEN_WITHIN
from penstock.calendar.periods import next_before_cut_off
from penstock.domains.payments.control.type_rules import read_calendar
from penstock.domains.payments.lanes import LANE
from penstock.domains.payments.payment import Draft
from penstock.kernel import driver
from penstock.kernel.enqueue import check_instant
from penstock.postgres.statement import statement

READ_PAYMENT_CALENDARS = statement(__package__, "read_payment_calendars.sql")


async def determine_times(
    connection: object, drafts: Sequence[Draft], now: datetime
) -> Sequence[Draft]:
    """Return the drafts with the earliest instant of each; raises InvalidInput if none is open.

    Raises InvalidCalendar for a calendar that was written with SQL and cannot be used.
    """
    openings = await find_openings(connection, drafts, now)
    return [
        replace(each, scheduled_at=_opened(opening))
        for each, opening in zip(drafts, openings, strict=True)
    ]


async def find_openings(
    connection: object, drafts: Sequence[Draft], now: datetime
) -> list[datetime | InvalidInput]:
    """Return when calendars let payments be executed, or why they never do.

    Without a calendar it is the instant that was asked for, also if that is over.
    """
    types = sorted({each.payment.item_type for each in drafts})
    row = await driver.fetch_row(connection, READ_PAYMENT_CALENDARS, (types,), lane=LANE)
    found = zip(*(each or () for each in row), strict=True)
    calendars = {item_type: read_calendar(item_type, text) for item_type, text in found}
    return [
        _open_at(calendars.get(each.payment.item_type), each.payment.execute_at or now, now)
        for each in drafts
    ]


def _opened(opening: datetime | InvalidInput) -> datetime:
    if isinstance(opening, InvalidInput):
        raise opening
    return opening


def _open_at(
    calendar: Calendar | None, asked_at: datetime, now: datetime
) -> datetime | InvalidInput:
    if calendar is None:
        return asked_at
    # What is asked for too late is executed now: whether it was open then does not matter.
    earliest_at = max(asked_at, now)
    opens_at = next_before_cut_off(calendar, earliest_at, earliest_at + OPEN_WITHIN)
    if opens_at is None:
        return InvalidInput("execute_at", "has no opening within the next year")
    try:
        check_instant("execute_at", opens_at)
    except InvalidInput as refused:
        return refused
    return opens_at
