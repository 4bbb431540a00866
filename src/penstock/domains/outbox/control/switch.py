"""Kill switches: stop all instructions, those of a rail, or those of a participant.

Workers read them when they claim, and again right before each call. What is stopped waits, keeps
its place, and loses no attempt.
"""

from dataclasses import dataclass
from datetime import datetime

from penstock.domains.outbox.control.control_scope import ControlScope, check_known, check_scope
from penstock.domains.outbox.errors import UnknownSwitch
from penstock.kernel.audit import audit
from penstock.kernel.operate import check_decision
from penstock.postgres.pool import Connection, Queries
from penstock.postgres.statement import statement

STOP_SWITCH = statement(__package__, "stop_switch.sql")
START_SWITCH = statement(__package__, "start_switch.sql")
LIST_SWITCHES = statement(__package__, "list_switches.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """Something that is stopped; `name` is * for everything."""

    scope: ControlScope
    name: str
    reason: str
    who: str
    at: datetime


async def stop(
    db: Connection, scope: ControlScope, name: str | None = None, *, who: str, reason: str
) -> Switch:
    """Stop it for the next call; a repeat replaces the reason. Raises InvalidInput."""
    check_decision(who=who, reason=reason)
    name = check_scope(scope, name)
    await check_known(db, scope, name)
    async with db.transaction():
        row = await db.fetchrow(STOP_SWITCH, scope, name, reason, who)
        assert row is not None
        await audit(
            db, who, "outbox_switch.stopped", subject=f"{scope} {name}", after={"reason": reason}
        )
    return Switch(**dict(row.items()))


async def start(
    db: Connection, scope: ControlScope, name: str | None = None, *, who: str, reason: str
) -> None:
    """Start it again, or raise UnknownSwitch. Another switch may still stop a part of it."""
    check_decision(who=who, reason=reason)
    name = check_scope(scope, name)
    async with db.transaction():
        stopped_for = await db.fetchval(START_SWITCH, scope, name)
        if stopped_for is None:
            raise UnknownSwitch(scope, name)
        await audit(
            db, who, "outbox_switch.started", subject=f"{scope} {name}",
            before={"reason": stopped_for}, after={"reason": reason},
        )  # fmt: skip


async def list_switches(db: Queries) -> list[Switch]:
    """Return what is stopped, the latest first."""
    return [Switch(**dict(row.items())) for row in await db.fetch(LIST_SWITCHES)]
