"""What operators do during a run, as the plan says, and what they decide at its end."""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import monotonic
from uuid import UUID

from penstock.base.errors import InvalidInput
from penstock.base.log import get_logger
from penstock.domains.outbox.audit.archive import Archive
from penstock.domains.outbox.control import operate, suspension, switch
from penstock.domains.outbox.errors import (
    DecisionRefused,
    ResultUnknown,
    UnknownSuspension,
    UnknownSwitch,
)
from penstock.domains.outbox.rails.simulator.entry import Entry
from penstock.domains.outbox.reconcile.resolve import Decision, Resolver
from penstock.kernel.errors import StateConflict
from penstock.postgres.errors import DatabaseAway
from penstock.postgres.pool import Connection, Pool, database_away
from tests.fault.outbox_seeds.persist import persist
from tests.fault.outbox_seeds.plan import FINAL_SECONDS, Act, Planned, Verb
from tests.fault.outbox_seeds.proof import Standing, read_ledger, read_standings
from tests.fault.waiting import pause, until

WHO = "operator"
REASON = "as planned"
LOOK_SECONDS = 0.3  # How soon an operator sees that an instruction has failed.
UNKNOWN_SECONDS = 8.0  # How long one waits for a result that is unknown; slow machines take long.
# How long one tries to hold a head: what is in flight or in doubt cannot be held.
HOLD_SECONDS = 3.0
WAITING = frozenset({"ready", "scheduled", "held", "dead"})
# What an operator is told instead of an effect; the state may have changed a moment ago.
REFUSED = (
    DecisionRefused, InvalidInput, ResultUnknown, StateConflict, UnknownSuspension, UnknownSwitch,
)  # fmt: skip


@dataclass(slots=True, kw_only=True)
class Operator:
    """The operators of one run.

    `note` gets each verb that had an effect, as `operate` during the faults and as `decide` after
    them. `releases` are the instants at which an instruction was released, on the monotonic clock:
    the next send is allowed then.
    """

    pool: Pool
    ledger: Path
    note: Callable[[str, str], None]
    archive: Archive = field(default_factory=lambda: Archive(log=get_logger()))
    releases: dict[UUID, list[float]] = field(default_factory=lambda: defaultdict(list))
    refusals: list[str] = field(default_factory=list[str])
    flagged: int = 0
    _phase: str = "operate"
    _seen: set[UUID] = field(default_factory=set[UUID])

    async def act(self, act: Act) -> None:
        """Do what is planned at its time, and undo it if it is planned to end during the faults."""
        await pause(act.at)
        undo = await self._begin(act)
        if undo is not None and act.seconds is not None:
            await pause(act.seconds)
            await undo()

    async def remedy_failures(self, planned: Mapping[str, Planned]) -> None:
        """Do what is planned about each instruction that fails, once, until cancelled."""
        while True:
            for each in await persist(lambda: read_standings(self.pool)):
                if each.item_state == "dead" and each.outbox_id not in self._seen:
                    self._seen.add(each.outbox_id)
                    await self._remedy(each, planned[each.instruction_id])
            await pause(LOOK_SECONDS)

    async def end_faults(self) -> None:
        """Do no more by plan, and start what was stopped: nothing comes to an end without that."""
        self._phase = "decide"
        for each in await persist(lambda: switch.list_switches(self.pool)):
            name = None if each.scope == "all" else each.name
            await self._start(each.scope, name)

    async def decide_once(self) -> bool:
        """Decide what only people decide; the ledger has the truth. False: nothing was left."""
        standings = await read_standings(self.pool)
        heads = [each for each in standings if each.item_state in {"held", "dead"}]
        parked = {each.participant_id for each in standings if each.item_state == "parked"}
        unknown = [each for each in heads if each.state == "UNKNOWN"]
        others = [each for each in heads if each.state != "UNKNOWN"]
        suspended = await suspension.list_suspensions(self.pool)
        for each in suspended:
            await self._resume(each.participant_id)
        held = [each for each in others if each.item_state == "held"]
        for each in held:
            await self._release(each.outbox_id)
        failed = [
            each for each in others if each.item_state == "dead" and each.participant_id in parked
        ]
        for each in failed:
            await self._skip(each.outbox_id)
        self.flagged += len(unknown)
        await self._resolve(unknown)
        return bool(unknown or held or failed or suspended)

    # ---------------------------------------------------------------------------------- verbs

    async def _remedy(self, failed: Standing, planned: Planned) -> None:
        match planned.remedy:
            case "release":
                await self._release(failed.outbox_id)
                await self._resume(failed.participant_id)
            case "resume":
                await self._resume(failed.participant_id)
            case "skip":
                await self._skip(failed.outbox_id)
            case "wait":
                pass

    async def _begin(self, act: Act) -> Callable[[], Awaitable[None]] | None:
        """Carry out a verb; return what undoes it, if it lasts."""
        participant = act.participant
        if act.verb == "resolve":
            with suppress(TimeoutError):
                await until(self._has_unknown, within=UNKNOWN_SECONDS)
            await self._resolve(await self._find_unknown())
            return None
        if participant is None:
            await self._stop("all", None)
            return lambda: self._start("all", None)
        match act.verb:
            case "stop":
                await self._stop("participant", participant)
                return lambda: self._start("participant", participant)
            case "suspend":
                await self._try("suspend", lambda db: suspension.suspend(
                    db, participant, who=WHO, reason=REASON))  # fmt: skip
                return lambda: self._resume(participant)
            case "resume":
                await self._resume(participant)
            case "hold":
                return await self._hold(participant)
            case "release" | "skip":
                await self._decide_head(act.verb, participant)
        return None

    async def _hold(self, participant: str) -> Callable[[], Awaitable[None]] | None:
        """Hold a head as soon as that is allowed, of this participant first; return what undoes it.

        A participant may be paid by now, or in doubt until the end: then another one's is held.
        """
        held: list[UUID] = []

        async def hold_head() -> bool:
            heads = await self._find_heads()
            for head in sorted(heads, key=lambda each: each.participant_id != participant):
                if await self._try("hold", lambda db, outbox_id=head.outbox_id: operate.hold(
                    db, outbox_id, who=WHO, reason=REASON)):  # fmt: skip
                    held.append(head.outbox_id)
                    return True
            return False

        with suppress(TimeoutError):
            await until(hold_head, within=HOLD_SECONDS)
        return partial(self._release, held[0]) if held else None

    async def _decide_head(self, verb: Verb, participant: str) -> None:
        for head in await self._find_heads():
            if head.participant_id == participant:
                decide = self._release if verb == "release" else self._skip
                await decide(head.outbox_id)

    async def _has_unknown(self) -> bool:
        return bool(await self._find_unknown())

    async def _find_unknown(self) -> list[Standing]:
        standings = await persist(lambda: read_standings(self.pool))
        return [each for each in standings if each.state == "UNKNOWN"]

    async def _find_heads(self) -> list[Standing]:
        """Return the head of each participant that has one which is not in flight."""
        standings = await persist(lambda: read_standings(self.pool))
        participants = sorted({each.participant_id for each in standings})
        heads = [
            _find_head([each for each in standings if each.participant_id == participant])
            for participant in participants
        ]
        return [head for head in heads if head is not None]

    async def _stop(self, scope: switch.ControlScope, name: str | None) -> None:
        await self._try("stop", lambda db: switch.stop(db, scope, name, who=WHO, reason=REASON))

    async def _start(self, scope: switch.ControlScope, name: str | None) -> None:
        await self._try("start", lambda db: switch.start(db, scope, name, who=WHO, reason=REASON))

    async def _resume(self, participant: str) -> None:
        await self._try("resume", lambda db: suspension.resume(
            db, participant, archive=self.archive, who=WHO, reason=REASON))  # fmt: skip

    async def _skip(self, outbox_id: UUID) -> None:
        await self._try("skip", lambda db: operate.skip(
            db, outbox_id, archive=self.archive, who=WHO, reason=REASON))  # fmt: skip

    async def _release(self, outbox_id: UUID) -> None:
        # Before it: the next send may follow at once.
        self.releases[outbox_id].append(monotonic())
        await self._try("release", lambda db: operate.release(
            db, outbox_id, archive=self.archive, who=WHO, reason=REASON))  # fmt: skip

    async def _resolve(self, unknown: Sequence[Standing]) -> None:
        """Say what the ledger shows about unknown results: paid, refused, or never arrived.

        Another operator may have had one sent again since: its new call may be booked later.
        """
        if not unknown:
            return
        await pause(FINAL_SECONDS)  # A slow request may still be booked.
        entries = {entry.outbox_id: entry for entry in read_ledger(self.ledger)}
        for each in unknown:
            outbox_id, attempt = each.outbox_id, each.attempt_count
            decision = _decide(entries.get(str(outbox_id)))
            if decision.resolution == "again":
                self.releases[outbox_id].append(monotonic())
            # Once, unlike the others: after a lost answer it may be about another attempt.
            try:
                with database_away():
                    async with self.pool.acquire() as db:
                        resolver = Resolver(archive=self.archive)
                        await resolver.resolve(db, outbox_id, decision, attempt=attempt)
            except (DatabaseAway, *REFUSED) as refused:
                self.refusals.append(f"{self._phase} resolve: {refused}")
            else:
                self.note(self._phase, "resolve")

    async def _try(self, verb: str, work: Callable[[Connection], Awaitable[object]]) -> bool:
        """Carry out a verb, and return whether it had an effect."""

        async def attempt() -> None:
            async with self.pool.acquire() as db:
                await work(db)

        try:
            await persist(attempt)
        except REFUSED as refused:
            self.refusals.append(f"{self._phase} {verb}: {refused}")
            return False
        self.note(self._phase, verb)
        return True


def _find_head(own: Sequence[Standing]) -> Standing | None:
    """Return the head among the instructions of one participant."""
    waiting = [each for each in own if each.item_state in WAITING]
    is_followed = any(each.item_state == "parked" for each in own)
    # Only the last of the dead ones is the head; the others were skipped.
    dead = [each for each in waiting if each.item_state == "dead"]
    heads = [each for each in waiting if each.item_state != "dead"]
    return heads[0] if heads else dead[-1] if dead and is_followed else None


def _decide(entry: Entry | None) -> Decision:
    reason = "the ledger was read"
    if entry is None:
        return Decision(resolution="again", who=WHO, reason=reason)
    if entry.is_booked and entry.code != "RETURNED":
        return Decision(resolution="paid", who=WHO, reason=reason, reference=entry.reference)
    return Decision(resolution="failed", who=WHO, reason=reason)
