"""What must be true after a run: the rail's own ledger decides who was paid, and how often."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
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
from tests.fault.outbox_seeds.plan import Plan
from tests.fault.waiting import until

SEAL_SECONDS = 20.0  # Sealing waits for transactions of processes that were killed a moment ago.

INSTRUCTIONS: LiteralString = """
SELECT i.outbox_id, i.instruction_id, i.participant_id, i.sequence_id, i.item_id, p.item_state,
    coalesce(p.state, 'GONE') AS state, coalesce(p.reason, '') AS reason,
    ARRAY(SELECT a.state FROM penstock.outbox_attempt AS a WHERE a.outbox_id = i.outbox_id
        ORDER BY a.created_at, a.attempt_id) AS archived
FROM penstock.outbox_instruction AS i
LEFT JOIN penstock.outbox_progress(ARRAY(SELECT outbox_id FROM penstock.outbox_instruction)) AS p
    USING (outbox_id)
ORDER BY i.participant_id, i.sequence_id
"""
# What a failed run leaves for a person, besides the ledger, the plan and the logs.
TRACES: Mapping[str, LiteralString] = {
    "archive": "SELECT * FROM penstock.outbox_attempt ORDER BY outbox_id, created_at, attempt_id",
    "attempts": "SELECT * FROM penstock.attempt ORDER BY item_id, attempt",
    "late results": "SELECT * FROM penstock.late_result ORDER BY item_id",
    "held": "SELECT * FROM penstock.held ORDER BY id",
    "lookups": "SELECT * FROM penstock.outbox_lookup ORDER BY item_id",
    "leases": "SELECT * FROM penstock.lease",
    "ready": "SELECT * FROM penstock.ready",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where the outbox has an instruction."""

    outbox_id: UUID
    instruction_id: str
    participant_id: str
    sequence_id: int
    item_id: int
    item_state: str | None
    state: str
    reason: str
    archived: Sequence[str]


async def read_standings(pool: Pool) -> list[Standing]:
    return [Standing(**dict(row.items())) for row in await pool.fetch(INSTRUCTIONS)]


def read_ledger(path: Path) -> list[Entry]:
    """Read what the rail has recorded, in the order in which it did."""
    ledger = Ledger(path)
    try:
        return ledger.list(limit=10_000)
    finally:
        ledger.close()


async def find_wrongs(
    pool: Pool, plan: Plan, *, accepted: Mapping[str, UUID], entries: Sequence[Entry]
) -> list[str]:
    """Return every promise that is broken now; nothing must be in flight."""
    standings = await read_standings(pool)
    counted = await balance(pool)
    wrongs = [
        *find_misplaced(standings, accepted),
        *find_wrong_payments(standings, entries),
        *find_gaps(standings),
        *find_inversions(entries),
    ]
    if not counted.is_even or counted.accepted != len(plan.instructions):
        wrongs.append(f"the kernel's items do not add up: {counted}")
    return wrongs


def find_misplaced(standings: Sequence[Standing], accepted: Mapping[str, UUID]) -> list[str]:
    """Compare what producers were told with what is stored."""
    stored = {each.instruction_id: each.outbox_id for each in standings}
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
    known = {str(each.outbox_id) for each in standings}
    wrongs = [f"{outbox_id} was paid, and is unknown" for outbox_id in bookings.keys() - known]
    blocked = {each.participant_id for each in standings if each.item_state in {"held", "dead"}}
    for each in standings:
        count = bookings[str(each.outbox_id)]
        is_blocked = each.item_state == "parked" and each.participant_id in blocked
        found = _find_wrongs_of(each, count, is_blocked=is_blocked)
        name = f"{each.instruction_id} ({each.item_state}, {each.state}, {list(each.archived)})"
        wrongs += [f"{wrong}: {name} {each.reason}" for wrong in found]
    return wrongs


def _find_wrongs_of(each: Standing, count: int, *, is_blocked: bool) -> Iterator[str]:
    """Yield what is wrong with an instruction that the rail has booked `count` times."""
    if count > 1:
        yield f"paid {count} times"
    match each.state:
        case "DISPATCHED" | "SETTLED" | "RETURNED":
            if count == 0:
                yield "lost, it is not in the ledger"
            if each.archived.count("DISPATCHED") != 1:
                yield "not archived once as dispatched"
        case "FAILED":
            if count:
                yield "failed, and paid"
            if "FAILED" not in each.archived:
                yield "not archived as failed"
        case "UNKNOWN":
            if "UNKNOWN" not in each.archived:
                yield "unknown, and not archived as that"
        case "PENDING" if is_blocked:
            if count:
                yield "paid, and not flagged"
        case _:
            yield "neither ended nor flagged"


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
