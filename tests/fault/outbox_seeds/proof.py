"""What must be true after a run: the rail's own ledger decides who was paid, and how often."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import LiteralString
from uuid import UUID

from penstock.domains.outbox.audit.seal import seal
from penstock.domains.outbox.audit.verify import verify
from penstock.domains.outbox.rails.simulator.entry import Entry
from penstock.domains.outbox.rails.simulator.ledger import Ledger
from penstock.kernel.inspect import balance
from penstock.postgres.pool import Pool
from tests.fault.outbox_seeds.plan import QUERY_MODES, Plan
from tests.fault.outbox_seeds.traffic import Line, find_forbidden
from tests.fault.waiting import until

SEAL_SECONDS = 20.0  # Sealing waits for transactions of processes that were killed a moment ago.

INSTRUCTIONS: LiteralString = """
SELECT i.outbox_id, i.instruction_id, i.idempotency_key, i.participant_id, i.sequence_id, i.item_id,
    p.attempt_count, p.item_state, coalesce(p.state, 'GONE') AS state,
    coalesce(p.reason, '') AS reason,
    ARRAY(SELECT a.state FROM penstock.outbox_attempt AS a WHERE a.outbox_id = i.outbox_id
        ORDER BY a.created_at, a.attempt_id) AS archived,
    ARRAY(SELECT a.rail_code FROM penstock.outbox_attempt AS a
        WHERE a.outbox_id = i.outbox_id AND a.state = 'DISPATCHED') AS dispatched_codes,
    EXISTS (SELECT FROM penstock.outbox_lookup AS k
        WHERE k.item_id = i.item_id AND k.purpose = 'settlement') AS is_awaited
FROM penstock.outbox_instruction AS i
LEFT JOIN penstock.outbox_progress(ARRAY(SELECT outbox_id FROM penstock.outbox_instruction)) AS p
    USING (outbox_id)
ORDER BY i.participant_id, i.sequence_id
"""
# What a failed run leaves for a person, besides the ledger, the plan and the logs.
TRACES: Mapping[str, LiteralString] = {
    "archive": "SELECT * FROM penstock.outbox_attempt ORDER BY outbox_id, created_at, attempt_id",
    "seals": "SELECT seal_no, kind, sealed_at, last_xid, last_attempt_id, attempt_ids, row_hashes"
    " FROM penstock.outbox_seal ORDER BY seal_no",
    "attempts": "SELECT * FROM penstock.attempt ORDER BY item_id, attempt",
    "late results": "SELECT * FROM penstock.late_result ORDER BY item_id",
    "held": "SELECT * FROM penstock.held ORDER BY id",
    "results": "SELECT * FROM penstock.outbox_result ORDER BY outbox_id, received_at",
    "suspensions": "SELECT * FROM penstock.outbox_suspension",
    "switches": "SELECT * FROM penstock.outbox_switch",
    "audit": "SELECT * FROM penstock.audit",
    "lookups": "SELECT * FROM penstock.outbox_lookup ORDER BY item_id",
    "leases": "SELECT * FROM penstock.lease",
    "ready": "SELECT * FROM penstock.ready",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where the outbox has an instruction."""

    outbox_id: UUID
    instruction_id: str
    idempotency_key: str
    participant_id: str
    sequence_id: int
    item_id: int
    attempt_count: int | None
    item_state: str | None
    state: str
    reason: str
    archived: Sequence[str]
    dispatched_codes: Sequence[str | None]
    is_awaited: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What the outside of the outbox has seen: producers, the rail, operators."""

    plan: Plan
    accepted: Mapping[tuple[str, str], UUID]
    entries: Sequence[Entry]
    traffic: Sequence[Line]
    releases: Mapping[UUID, Sequence[float]]
    # The ids and statuses of the reports that were taken before all else was looked at: what is
    # reported meanwhile may be missing from the rest.
    reported: Collection[tuple[str, str]]


async def read_standings(pool: Pool) -> list[Standing]:
    return [Standing(**dict(row.items())) for row in await pool.fetch(INSTRUCTIONS)]


def read_ledger(path: Path) -> list[Entry]:
    """Read what the rail has recorded, in the order in which it did."""
    ledger = Ledger(path)
    try:
        return ledger.list(limit=10_000)
    finally:
        ledger.close()


async def find_wrongs(pool: Pool, observed: Observed) -> list[str]:
    """Return every promise that is broken now; nothing must be in flight."""
    standings = await read_standings(pool)
    counted = await balance(pool)
    wrongs = [
        *find_misplaced(standings, observed.accepted),
        *find_wrong_payments(standings, observed.entries),
        *find_paid_under_two_keys(observed.entries),
        *find_unsettled(standings, observed),
        *find_gaps(standings),
        *find_inversions(observed.entries),
        *find_forbidden_sends(standings, observed),
    ]
    if not counted.is_even or counted.accepted != len(observed.accepted):
        wrongs.append(f"the kernel's items do not add up: {counted}")
    return wrongs


async def find_unfinished(pool: Pool) -> list[str]:
    """Return what has not ended although nothing is left to decide."""
    return [
        f"not ended after all decisions: {_describe(each)}"
        for each in await read_standings(pool)
        if each.state in {"PENDING", "DISPATCHING", "UNKNOWN"}
    ]


def find_misplaced(
    standings: Sequence[Standing], accepted: Mapping[tuple[str, str], UUID]
) -> list[str]:
    """Compare what producers were told with what is stored."""
    stored = {(each.instruction_id, each.idempotency_key): each.outbox_id for each in standings}
    wrongs = [f"{name} was accepted, and is gone" for name in accepted.keys() - stored.keys()]
    wrongs += [f"{name} is stored, and nobody sent it" for name in stored.keys() - accepted.keys()]
    both = accepted.keys() & stored.keys()
    return wrongs + [
        f"{name} has another id than its producer got"
        for name in both
        if accepted[name] != stored[name]
    ]


def find_wrong_payments(standings: Sequence[Standing], entries: Sequence[Entry]) -> list[str]:
    """Compare the state of each instruction with how often the rail has booked it."""
    bookings = Counter(entry.outbox_id for entry in entries if entry.is_booked)
    returns = Counter(entry.outbox_id for entry in entries if is_returned(entry))
    known = {str(each.outbox_id) for each in standings}
    wrongs = [f"{outbox_id} was paid, and is unknown" for outbox_id in bookings.keys() - known]
    blocked = {each.participant_id for each in standings if each.item_state in {"held", "dead"}}
    for each in standings:
        outbox_id = str(each.outbox_id)
        is_blocked = each.item_state in {"held", "parked"} and each.participant_id in blocked
        found = _find_wrongs_of(
            each, bookings[outbox_id], returned=returns[outbox_id], is_blocked=is_blocked
        )
        wrongs += [f"{wrong}: {_describe(each)}" for wrong in found]
    return wrongs


def is_returned(entry: Entry) -> bool:
    """Return whether a payment was booked and has come back."""
    return entry.is_booked and entry.code == "RETURNED"


def _describe(each: Standing) -> str:
    name = f"{each.instruction_id} ({each.item_state}, {each.state}, {list(each.archived)})"
    return f"{name} {each.reason}"


def _find_wrongs_of(
    each: Standing, count: int, *, returned: int, is_blocked: bool
) -> Iterator[str]:
    """Yield what is wrong with an instruction that was booked `count` times, some returned."""
    if count - returned > 1:
        yield f"paid {count} times"
    match each.state:
        case "DISPATCHED" | "SETTLED" | "RETURNED":
            if count == 0:
                yield "lost, it is not in the ledger"
            if each.archived.count("DISPATCHED") != 1:
                yield "not archived once as dispatched"
        case "FAILED":
            if count > returned:
                yield "failed, and paid"
            if "FAILED" not in each.archived:
                yield "not archived as failed"
        case "UNKNOWN":
            if "UNKNOWN" not in each.archived:
                yield "unknown, and not archived as that"
        case "PENDING" if is_blocked:
            if count > returned:
                yield "paid, and not flagged"
        case _:
            yield "neither ended nor flagged"


def find_paid_under_two_keys(entries: Sequence[Entry]) -> list[str]:
    """Return instructions that were paid under a second key without having come back."""
    paid = Counter(
        entry.instruction_id for entry in entries if entry.is_booked and not is_returned(entry)
    )
    return [f"{name} was paid {count} times, whatever its key" for name, count in paid.items()
            if count > 1]  # fmt: skip


def find_unsettled(standings: Sequence[Standing], observed: Observed) -> list[str]:
    """Compare dispatched instructions with what the rail has made of them.

    One that is not final must be asked about, if the rail answers queries.
    """
    codes = {entry.outbox_id: entry.code for entry in observed.entries if entry.is_booked}
    wrongs: list[str] = []
    for each in standings:
        outbox_id = str(each.outbox_id)
        code = codes.get(outbox_id)
        is_asked = observed.plan.mode in QUERY_MODES
        is_told = is_asked or (code is not None and (outbox_id, code.lower()) in observed.reported)
        # On a rail that decides at once, an answer that it is settled is the end.
        is_settled_at_once = (
            not observed.plan.is_asynchronous and "SETTLED" in each.dispatched_codes
        )
        match each.state, code:
            case "DISPATCHED", "ACCEPTED" if is_asked and not each.is_awaited:
                wrongs.append(f"accepted, and nobody asks what becomes of it: {_describe(each)}")
            case "DISPATCHED", "PAID" if is_asked and observed.plan.is_asynchronous:
                wrongs.append(f"paid, and not settled: {_describe(each)}")
            case "DISPATCHED" | "RETURNED", "SETTLED" if is_told and not is_settled_at_once:
                wrongs.append(f"settled, and not so here: {_describe(each)}")
            case "DISPATCHED" | "SETTLED", "RETURNED" if is_told:
                wrongs.append(f"returned, and not so here: {_describe(each)}")
            case _:
                pass
    return wrongs


def find_forbidden_sends(standings: Sequence[Standing], observed: Observed) -> list[str]:
    """Return payments that were sent again although nothing allowed it."""
    known = {str(each.outbox_id): each for each in standings}
    releases = {str(outbox_id): instants for outbox_id, instants in observed.releases.items()}
    forbidden = find_forbidden(observed.traffic, observed.plan.mode, releases=releases)
    return [f"{each.reason}: {_describe(known[each.outbox_id])}" for each in forbidden]


def find_gaps(standings: Sequence[Standing]) -> list[str]:
    """Compare each participant's numbers with 1 to the count of its instructions."""
    numbers: dict[str, list[int]] = defaultdict(list)
    for each in standings:
        numbers[each.participant_id].append(each.sequence_id)
    return [
        f"the numbers of {participant} have a gap: {found}"
        for participant, found in numbers.items()
        if found != list(range(1, len(found) + 1))
    ]


def find_inversions(entries: Sequence[Entry]) -> list[str]:
    """Return bookings of a participant that came before an earlier instruction's."""
    last: dict[str, int] = defaultdict(int)
    wrongs: list[str] = []
    for entry in entries:
        if not entry.is_booked:
            continue
        if entry.sequence_id < last[entry.participant_id]:
            wrongs.append(f"{entry.instruction_id} was booked after a later one")
        last[entry.participant_id] = max(entry.sequence_id, last[entry.participant_id])
    return wrongs


async def find_unsealed(pool: Pool) -> list[str]:
    """Seal what is left, and return what the verification of the archive finds."""

    async def is_sealed() -> bool:
        await seal(pool)
        async with pool.acquire() as db:
            return (await verify(db)).unsealed == 0

    await until(is_sealed, within=SEAL_SECONDS)
    async with pool.acquire() as db:
        return [f"the archive is not as sealed: {fault}" for fault in (await verify(db)).faults]


async def write_traces(pool: Pool, path: Path, entries: Sequence[Entry]) -> None:
    """Write what a person needs to understand a failure."""
    with path.open("w", encoding="utf-8") as file:
        for standing in await read_standings(pool):
            file.write(f"{standing}\n")
        file.writelines(f"{entry}\n" for entry in entries)
        for title, sql in TRACES.items():
            file.write(f"\n{title}\n")
            file.writelines(f"{dict(row.items())}\n" for row in await pool.fetch(sql))
