"""What stops an instruction before it is sent: switches, suspension, approval, limits, cut-off."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from penstock.base.clock import Clock, instant
from penstock.calendar.check import OPEN_WITHIN
from penstock.domains.outbox.control.cut_off import CLOSED_UNTIL, list_calendars, next_send_at
from penstock.domains.outbox.control.held_reason import AWAITS_APPROVAL, SUSPENDED
from penstock.domains.outbox.instruction import Instruction
from penstock.domains.outbox.verdict import PROCEED, ControlVerdict, Stop
from penstock.kernel.item import Dead, Hold, Snooze
from penstock.postgres.array import to_array
from penstock.postgres.pool import Connection, Row
from penstock.postgres.statement import statement

CONTROL = statement(__package__, "control.sql")
HAS_CONTROLS = statement(__package__, "has_controls.sql")

# How soon an instruction leaves after a switch is started again; each look costs an attempt's row.
STOPPED_FOR = timedelta(seconds=30)
REJECTED = "REJECTED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """Decides about the instructions of a claimed batch."""

    clock: Clock

    async def load(
        self, db: Connection, instructions: Sequence[Instruction]
    ) -> list[ControlVerdict]:
        """Return one verdict for each; those that pass are counted in the sum of their day.

        A participant must not have two of them: only its head is claimed. The statement commits by
        itself, or with the caller's transaction.
        """
        if not instructions:
            return []
        now = instant(self.clock)
        closed = await _find_closed(db, {each.rail_type for each in instructions}, now=now)
        if not await db.fetchval(
            HAS_CONTROLS,
            to_array(each.outbox_id for each in instructions),
            [each.participant_id for each in instructions],
            list({each.rail_type for each in instructions}),
            list({each.currency for each in instructions}),
        ):
            return [_to_open(closed.get(each.rail_type), now=now) for each in instructions]
        rows = await db.fetch(
            CONTROL,
            [each.outbox_id for each in instructions],
            [each.item_id for each in instructions],
            [each.participant_id for each in instructions],
            [each.rail_type for each in instructions],
            [each.amount for each in instructions],
            [each.currency for each in instructions],
            [each.rail_type not in closed for each in instructions],
            now,
        )
        return [
            _to_verdict(row, each, opens_at=closed.get(each.rail_type), now=now)
            for row, each in zip(rows, instructions, strict=True)
        ]


async def _find_closed(
    db: Connection, rail_types: set[str], *, now: datetime
) -> Mapping[str, datetime]:
    """Return the rails that are closed now, and when each opens."""
    closed: dict[str, datetime] = {}
    for each in await list_calendars(db):
        if each.rail_type in rail_types:
            # One that never opens was valid when it was stored: look again in a year.
            opens_at = next_send_at(each.calendar, now) or now + OPEN_WITHIN
            if opens_at > now:
                closed[each.rail_type] = opens_at
    return closed


def _to_verdict(
    row: Row, instruction: Instruction, *, opens_at: datetime | None, now: datetime
) -> ControlVerdict:
    if row["stopped_scope"] is not None:
        reason = f"stopped: {row['stopped_scope']} {row['stopped_name']}"
        return Stop(Snooze(STOPPED_FOR, reason), "STOPPED")
    if row["is_suspended"]:
        return Stop(Hold(SUSPENDED), "SUSPENDED")
    if row["decision"] == "rejected":
        reason = f"rejected by {row['decided_by']}: {row['decision_reason']}"
        return Stop(Dead(reason), REJECTED)
    if opens_at is not None:
        return _to_open(opens_at, now=now)
    return _apply_limits(row, instruction)


def _to_open(opens_at: datetime | None, *, now: datetime) -> ControlVerdict:
    if opens_at is None:
        return PROCEED
    until = opens_at.isoformat(timespec="seconds")
    return Stop(Snooze(opens_at - now, CLOSED_UNTIL + until), "CLOSED")


def _apply_limits(row: Row, instruction: Instruction) -> ControlVerdict:
    amount, currency = instruction.amount, instruction.currency
    is_approved = row["decision"] == "approved"
    if row["amount_max"] is not None and amount > row["amount_max"]:
        over = f"over the limit of {row['amount_max']:f} {currency}"
        if not row["is_tried"]:
            return Stop(Dead(over), "OVER_LIMIT")
        # It may have been paid before the limit was lowered, so it must not fail for that.
        return PROCEED if is_approved else _await_approval(over)
    if is_approved:
        return PROCEED
    if row["approval_above"] is not None and amount > row["approval_above"]:
        return _await_approval(f"over {row['approval_above']:f} {currency}")
    if not row["is_within_day"]:
        return _await_approval(f"over {row['day_amount_max']:f} {currency} on this day")
    return PROCEED


def _await_approval(because: str) -> Stop:
    return Stop(Hold(f"{AWAITS_APPROVAL}: {because}"), "AWAITS_APPROVAL")
