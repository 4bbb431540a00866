"""Release or end a held head when the reason for the hold is gone.

A worker that claimed a head just before a decision was visible holds the head after it. Such
participants are noted, and a service looks at them again when the worker has settled.
"""

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from penstock.contract.http import ACQUIRE_TIMEOUT
from penstock.domains.outbox.audit.archive import Archive
from penstock.domains.outbox.control.checks import REJECTED
from penstock.domains.outbox.control.held_reason import AWAITS_APPROVAL, SUSPENDED
from penstock.domains.outbox.lanes import LANE, OWNER
from penstock.kernel.operate import release, resolve
from penstock.postgres.pool import Connection, Pool
from penstock.postgres.statement import statement

READ_HELD_HEAD = statement(__package__, "read_held_head.sql")
NOTE_RECHECK = statement(__package__, "note_recheck.sql")
LOCK_RECHECK = statement(__package__, "lock_recheck.sql")
IS_IN_FLIGHT = statement(__package__, "is_in_flight.sql")
END_RECHECK = statement(__package__, "end_recheck.sql")

LOOK_EVERY = timedelta(seconds=2)  # A person who approved does not notice it.

_Next = Literal["release", "reject", "wait"]


async def apply_decision(
    db: Connection, participant_id: str, *, archive: Archive, who: str
) -> None:
    """Apply a decision to the head of a participant, in the transaction that writes it."""
    if not await _look(db, participant_id, archive=archive, who=who):
        await db.execute(NOTE_RECHECK, participant_id)


async def recheck_one(db: Connection, *, archive: Archive) -> bool:
    """Look at one participant that was noted; return whether there was one."""
    async with db.transaction():
        participant_id = await db.fetchval(LOCK_RECHECK, LANE)
        if participant_id is None:
            return False
        # Asked again behind the lock: the decision may be newer than the first answer.
        if not await db.fetchval(IS_IN_FLIGHT, LANE, participant_id):
            await _look(db, participant_id, archive=archive, who=OWNER)
            await db.execute(END_RECHECK, participant_id)
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Recheck:
    """The service that looks at noted participants."""

    pool: Pool
    archive: Archive

    async def run(self, stop: asyncio.Event) -> None:
        """Look at what was noted until `stop` is set."""
        while not stop.is_set():
            async with self.pool.acquire(timeout=ACQUIRE_TIMEOUT.total_seconds()) as db:
                while not stop.is_set() and await recheck_one(db, archive=self.archive):
                    pass
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), LOOK_EVERY.total_seconds())


async def _look(db: Connection, participant_id: str, *, archive: Archive, who: str) -> bool:
    """Release or end the held head if that was decided; return whether it was changed."""
    row = await db.fetchrow(READ_HELD_HEAD, LANE, participant_id)
    if row is None:
        return False
    following = _decide(row["reason"], row["decision"], is_suspended=row["is_suspended"])
    if following == "reject" and row["may_be_paid"]:
        # It was sent while the decision was made; the handler asks the rail before it ends it.
        following = "release"
    if following == "release":
        reason = row["decision"] if row["reason"].startswith(AWAITS_APPROVAL) else "resumed"
        await release(db, row["item_id"], who=who, reason=reason, owner=OWNER)
    elif following == "reject":
        reason = f"rejected: {row['decision_reason']}"[:1_000]
        await resolve(db, row["item_id"], "dead", who=who, reason=reason, owner=OWNER)
        await archive.write(
            db,
            row["outbox_id"],
            "FAILED",
            who=_decider(row["key_id"]),
            error_code=REJECTED,
            error_message=row["decision_reason"],
        )
    return following != "wait"


def _decider(key_id: str) -> str:
    """Return who has decided: the bearer of a key, or a service after a report."""
    return key_id if key_id.startswith("penstock.") else f"key:{key_id}"


def _decide(held_for: str, decision: str | None, *, is_suspended: bool) -> _Next:
    if held_for.startswith(AWAITS_APPROVAL) and decision is not None:
        return "release" if decision == "approved" else "reject"
    if held_for.startswith(SUSPENDED) and not is_suspended:
        return "release"
    return "wait"
