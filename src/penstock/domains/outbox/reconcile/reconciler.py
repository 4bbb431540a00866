"""Find out what became of instructions that may have been paid, and of those that settle later.

A service of every worker process: each instruction is looked at by one process at a time, at once
and then less and less often, until the rail, a late result or a person has decided.
"""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import assert_never, cast

from penstock.base.aio import outcome_of, spawn
from penstock.base.clock import Clock, instant
from penstock.base.log import Logger, describe
from penstock.domains.outbox.crash_point import CrashPoint, never_crash
from penstock.domains.outbox.earlier_calls import (
    AskAgain,
    AskPerson,
    Clearance,
    Finding,
    MaySend,
    Paid,
    PastCalls,
    Refused,
    differs,
    find_from_answer,
    find_known,
    find_without_query,
    settles_later,
)
from penstock.domains.outbox.loader import InstructionLoader, LoadedInstruction
from penstock.domains.outbox.lookup import (
    WAIT_FIRST,
    WAIT_MAX,
    Lookup,
    claim_lookups,
    drop_lookup,
    find_unknown,
    hasten_paid_late,
    move_lookup,
)
from penstock.domains.outbox.rails.rail import (
    LoadedRail,
    NoAnswer,
    NotFound,
    QueryResult,
    RailAnswer,
)
from penstock.domains.outbox.reconcile.resolve import Resolver
from penstock.domains.outbox.reconcile.results import Results
from penstock.domains.outbox.send import ADAPTER_GRACE
from penstock.domains.outbox.verdict import Stop
from penstock.kernel.item import Dead
from penstock.postgres.clock import read_instant
from penstock.postgres.errors import DatabaseAway
from penstock.postgres.pool import Connection, Pool, database_away

WHO = "penstock.reconcile"
# With a lease of 60 s and a sweep every 5 s, what a dead worker left is looked at within 70 s.
INTERVAL = timedelta(seconds=2)
LOST_MAX = 1_000  # Noted in one cycle.
PER_RAIL = 50  # Queries of one rail at the same time; the next cycle follows at once.
# A cycle ends when its slowest query has: one silent rail must not delay the others for long.
QUERY_TIMEOUT = timedelta(seconds=10)
CLAIM = timedelta(seconds=30)  # Longer than a query: after it, another process looks.
LEFT_WAIT = timedelta(seconds=30)  # A late result decides also what was left to a person.
# Held at once. With more, as many lookups as the pool has connections could each hold one and
# wait for another, to read a rail: none would ever end.
CONNECTIONS_MAX = 2
POLL_MAX = timedelta(hours=1)  # Between two questions whether an instruction was settled.
POLL_FOR = timedelta(days=60)  # Returns of direct debits come up to 60 days later.
POLL_LEFT = timedelta(days=1)  # And after that, when a person has to find out.

PAID = "the rail has it"
REFUSED = "the rail refused it for good"
CLEARANCES: dict[Clearance, str] = {
    "NO_DOUBT": "no earlier call is in doubt",
    "NOT_CALLED": "the worker reports that it made no call",
    "NOT_FOUND": "the rail does not know it, which is final",
    "REFUSED": "the rail refused it and allows another call",
    "SAME_KEY": "the rail recognises a repeated key",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciler:
    """Looks at instructions that are due for it."""

    pool: Pool
    loader: InstructionLoader
    resolver: Resolver
    results: Results
    clock: Clock
    log: Logger
    crash_point: CrashPoint = never_crash
    _places: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(CONNECTIONS_MAX))

    async def run(self, stop: asyncio.Event) -> None:
        """Reconcile until `stop` is set. Raises DatabaseAway; supervise it."""
        while not stop.is_set():
            with database_away():
                looked = await self.run_once()
            if not looked:
                with suppress(TimeoutError):
                    async with asyncio.timeout(INTERVAL.total_seconds()):
                        await stop.wait()

    async def run_once(self) -> int:
        """Look at what is due now; return how many instructions that were."""
        async with self.pool.acquire() as db:
            # Before the worker's first claim is answered, its clock is that of the machine.
            now = await read_instant(db, self.clock)
            async with db.transaction():
                lost = await find_unknown(db, limit=LOST_MAX, now=now)
                self.crash_point("before_unknown")
                await self.resolver.archive.publish(db, lost)
            await self.results.apply_waiting(db, now=now)
            await hasten_paid_late(db, now=now)
            lookups = await claim_lookups(db, per_rail=PER_RAIL, claim=CLAIM, now=now)
            loaded = await self.loader.load(
                db, [each.item_id for each in lookups], are_tried=[True] * len(lookups)
            )
        if lost:
            self.log.warning("instructions.lost", item_count=len(lost))
            self.resolver.archive.count("UNKNOWN", len(lost))
        async with asyncio.TaskGroup() as group:
            looks = [
                spawn(group, self._look_apart(each, loaded.get(each.item_id))) for each in lookups
            ]
        away = next((look.result() for look in looks if look.result() is not None), None)
        if away is not None:
            raise away
        return len(lookups)

    async def _look_apart(
        self, lookup: Lookup, loaded: LoadedInstruction | None
    ) -> DatabaseAway | None:
        """Look at one instruction. What fails costs only its own lookup, which is tried later."""

        async def look() -> None:
            with database_away():
                await self._look(lookup, loaded)

        failure = await outcome_of(look())
        if failure is None or isinstance(failure, DatabaseAway):
            return failure
        self.log.error("lookup.failed", item_id=lookup.item_id, **describe(failure))
        later = await outcome_of(self._ask_later(lookup))
        if later is not None:
            return DatabaseAway(type(later).__qualname__)
        return None

    async def _look(self, lookup: Lookup, loaded: LoadedInstruction | None) -> None:
        is_due = lookup.purpose == "settlement" or lookup.held_attempt == lookup.attempt
        if loaded is None or loaded.past is None or not is_due:
            await drop_lookup(self.pool, lookup)
        elif loaded.rail is None:
            # Another process may have the adapter.
            await self._ask_later(lookup)
        elif lookup.purpose == "settlement":
            await self._poll(lookup, loaded, loaded.rail)
        else:
            finding = await self._find(loaded, loaded.past, loaded.rail)
            await self._decide(lookup, loaded, finding)

    async def _find(self, loaded: LoadedInstruction, past: PastCalls, rail: LoadedRail) -> Finding:
        known = find_known(past, rail=rail)
        if known is not None:
            return known
        now = instant(self.clock)
        if not rail.rail.properties.can_query:
            return find_without_query(past, rail=rail, now=now)
        found = await self._query(loaded, rail)
        return find_from_answer(found, past, instruction=loaded.instruction, rail=rail, now=now)

    async def _query(self, loaded: LoadedInstruction, rail: LoadedRail) -> QueryResult:
        """Ask the rail; an adapter that raises or does not end in time has no answer."""
        self.crash_point("before_reconcile_query")

        timeout = min(rail.timeout, QUERY_TIMEOUT)

        async def ask() -> QueryResult:
            async with asyncio.timeout((timeout + ADAPTER_GRACE).total_seconds()):
                return await rail.rail.query(loaded.instruction, timeout=timeout)

        found = cast("object", await outcome_of(ask()))
        if isinstance(found, RailAnswer | NotFound | NoAnswer):
            return found
        if isinstance(found, TimeoutError):
            return NoAnswer("no answer in time")
        if isinstance(found, Exception):
            self.log.error("rail.failed", name=rail.rail_type, **describe(found))
            return NoAnswer("the adapter failed")
        # Adapters are plug-ins: what they return is not checked elsewhere.
        self.log.error("rail.failed", name=rail.rail_type, error=type(found).__qualname__)
        return NoAnswer("the adapter returned no answer")

    async def _decide(self, lookup: Lookup, loaded: LoadedInstruction, finding: Finding) -> None:
        """Apply a finding: end, release, ask again, or leave the instruction to a person."""
        match finding:
            case AskAgain(at=at):
                await self._ask_later(lookup, at=at)
            case AskPerson(code, reason):
                await self._leave(lookup, loaded, code=code, reason=reason)
            case MaySend(clearance) if await self._is_stopped(loaded, clearance):
                await self._ask_later(lookup)
            case _:
                self.crash_point("before_resolve")
                async with self._places, self.pool.acquire() as db, db.transaction():
                    await self._resolve(db, lookup, finding)
                    self.crash_point("before_resolve_commit")
                self.crash_point("after_resolve")

    async def _is_stopped(self, loaded: LoadedInstruction, clearance: Clearance) -> bool:
        """Return whether a control would stop the instruction, which holds it as unknown again.

        One that fails for its control is released if nothing is in doubt any more: it fails then.
        """
        async with self._places, self.pool.acquire() as db:
            (verdict,) = await self.loader.control.load(db, [loaded.instruction])
        if not isinstance(verdict, Stop):
            return False
        return clearance == "SAME_KEY" or not isinstance(verdict.outcome, Dead)

    async def _resolve(
        self, db: Connection, lookup: Lookup, finding: Paid | Refused | MaySend
    ) -> None:
        item_id, attempt, now = lookup.item_id, lookup.attempt, instant(self.clock)
        match finding:
            case Paid():
                is_changed = await self.resolver.end_paid(
                    db, item_id, finding, who=WHO, reason=PAID, attempt=attempt, now=now
                )
            case Refused():
                is_changed = await self.resolver.end_failed(
                    db, item_id, finding, who=WHO, reason=REFUSED, attempt=attempt, now=now
                )
            case MaySend(clearance):
                reason = CLEARANCES[clearance]
                is_changed = await self.resolver.release(
                    db, item_id, finding, who=WHO, reason=reason, attempt=attempt, now=now
                )
            case _:
                assert_never(finding)
        if not is_changed:
            # Another process or a person has decided meanwhile, and may have noted a settlement.
            await drop_lookup(db, lookup)

    async def _leave(
        self, lookup: Lookup, loaded: LoadedInstruction, *, code: str, reason: str
    ) -> None:
        """Leave an instruction to a person; look again now and then, as late results come."""
        if lookup.left_at is None:
            self.log.error(
                "instruction.left_undecided",
                outbox_id=str(loaded.instruction.outbox_id),
                name=loaded.instruction.rail_type,
                code=code,
                reason=reason,
            )
        now = instant(self.clock)
        await move_lookup(self.pool, lookup, now + LEFT_WAIT, is_left=True, now=now)

    async def _ask_later(self, lookup: Lookup, *, at: datetime | None = None) -> None:
        """Ask after a wait that doubles, or at `at` if that is sooner.

        What was not settled in time stays left to a person meanwhile.
        """
        now = instant(self.clock)
        due_at = now + _wait(lookup.looks, WAIT_FIRST, WAIT_MAX)
        if at is not None:
            due_at = min(due_at, at)
        is_left = lookup.purpose == "settlement" and lookup.left_at is not None
        await move_lookup(self.pool, lookup, due_at, is_left=is_left, now=now)

    # --------------------------------------------------------------------------- settlements

    async def _poll(self, lookup: Lookup, loaded: LoadedInstruction, rail: LoadedRail) -> None:
        """Ask whether a dispatched instruction was settled or returned.

        After POLL_FOR it is left to a person, and still asked about once a day: a late answer or
        report ends it.
        """
        if _is_settled_at_once(loaded, rail):
            await drop_lookup(self.pool, lookup)
            return
        now = instant(self.clock)
        is_left = now - lookup.since > POLL_FOR
        if is_left and lookup.left_at is None:
            self.log.error(
                "instruction.unsettled",
                outbox_id=str(loaded.instruction.outbox_id),
                name=loaded.instruction.rail_type,
            )
        wait = POLL_LEFT if is_left else _wait(lookup.looks, WAIT_FIRST, POLL_MAX)
        # Moved first: what is decided below removes the lookup, and what fails is asked later.
        await move_lookup(self.pool, lookup, now + wait, is_left=is_left, now=now)
        if not rail.rail.properties.can_query:
            return
        found = await self._query(loaded, rail)
        if not isinstance(found, RailAnswer):
            return
        if differs(found, loaded.instruction):
            self.log.error(
                "instruction.amount_differed", outbox_id=str(loaded.instruction.outbox_id)
            )
            return
        async with self._places, self.pool.acquire() as db:
            await self.results.note_answer(db, loaded.instruction, found, now=now)


def _is_settled_at_once(loaded: LoadedInstruction, rail: LoadedRail) -> bool:
    """Return whether nothing follows what a person has decided as paid, on a rail like this."""
    paid = None if loaded.past is None else loaded.past.paid
    return paid is not None and paid.rail_code is None and not settles_later(rail)


def _wait(looks: int, first: timedelta, longest: timedelta) -> timedelta:
    """Return the wait after so many looks: doubling, up to the longest."""
    return min(first * 2 ** min(looks, 20), longest)
