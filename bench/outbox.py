"""The bars of the outbox: instructions to a rail that pays at once, against the kernel's own order.

Both sides are measured in turns, with the same number of items and keys and one worker process. The
outbox runs with all that it does for money: controls, start marks, the check before each call,
archive rows and the sealer. On a busy machine the CPU time per item says more than the rates.
"""

from typing import Final

from bench import paying
from bench.figures import (
    OTHERS,
    Measurement,
    Row,
    at_least,
    at_most,
    detail,
    limit_row,
    middle_turn,
    named,
    ratio_row,
)
from bench.measure import Bench, Case, Stage, attempt, number, numbers, rate
from bench.paying import is_poisoned
from bench.registry import Subject

POISON_EVERY: Final = 100
MILLION: Final = 1_000_000
OUTBOX: Final = Subject(name="outbox", launch=paying.LAUNCH, items_max=10_000_000)


async def ordered(bench: Bench) -> list[Row]:
    """Instructions per second in strict order per participant, also behind poison heads."""
    kernel: list[Measurement] = []
    clean: list[Measurement] = []
    poisoned: list[Measurement] = []
    for _ in range(_turns(bench)):
        kernel.append(await _kernel(bench))
        clean.append(await _outbox(bench, "instructions"))
        poisoned.append(await _outbox(bench, "behind poison heads", poison_every=POISON_EVERY))
    own, theirs = middle_turn(clean, kernel)
    name = _name(bench, "instructions")
    worst = max(clean + poisoned, key=lambda each: each.detail.get("inversions", float("inf")))
    return [
        ratio_row(name, own, named(theirs, "the kernel's own order"), bar=at_least(0.5)),
        ratio_row(
            f"{name}: CPU time of the worker",
            detail(own, "cpu", "µs"),
            named(detail(theirs, "cpu", "µs"), "the kernel's own order"),
            bar=None,
        ),
        limit_row("inversions of order", detail(worst, "inversions", ""), bar=at_most(0, "0")),
        ratio_row(
            f"{name}, 1 % of participants poisoned: the others",
            *middle_turn(poisoned, [named(each, "none poisoned") for each in clean]),
            bar=at_least(0.95),
        ),
    ]


async def sealing(bench: Bench) -> list[Row]:
    """The same with and without the sealer; then one changed row is searched."""
    sealed: list[Measurement] = []
    unsealed: list[Measurement] = []
    for _ in range(_turns(bench)):
        unsealed.append(await _outbox(bench, "without a sealer", seals=False))
        sealed.append(await _outbox(bench, "with a sealer", searches=True))
    own, theirs = middle_turn(sealed, unsealed)
    slowest = max(sealed, key=lambda each: each.detail.get("search_seconds", float("inf")))
    found = min(sealed, key=lambda each: each.detail.get("is_found", 0.0))
    return [
        ratio_row(
            _name(bench, "instructions, sealed"),
            own,
            named(theirs, "without a sealer"),
            bar=at_least(0.95),
        ),
        limit_row(
            "share of the rows sealed at the end of the run",
            detail(own, "sealed_share", ""),
            bar=at_least(0.9, "≥ 0.9"),
        ),
        limit_row(
            "seconds to find one changed row, per million rows",
            detail(slowest, "search_seconds", "s"),
            bar=at_most(60, "≤ 60 s"),
        ),
        limit_row(
            "the changed row is found, and no other",
            detail(found, "is_found", ""),
            bar=at_least(1, "1"),
        ),
    ]


async def enqueue(bench: Bench) -> list[Row]:
    """Instructions accepted per second in batches, against bulk enqueue of plain items."""
    kernel: list[Measurement] = []
    own: list[Measurement] = []
    for _ in range(_turns(bench)):
        kernel.append(await _kernel(bench, enqueues=True))
        own.append(await _accept(bench))
    accepted, theirs = middle_turn(own, kernel)
    name = _name(bench, "instructions accepted")
    return [ratio_row(name, accepted, named(theirs, "the kernel's bulk enqueue"), bar=None)]


CASES: Final[dict[str, Case]] = {
    "outbox_ordered": ordered,
    "outbox_sealing": sealing,
    "outbox_enqueue": enqueue,
}


async def _kernel(bench: Bench, *, enqueues: bool = False) -> Measurement:
    """Measure a plain lane with as many items and keys."""
    items, keys = bench.sizes.instructions, bench.sizes.participants

    async def run(on: Stage) -> tuple[float, dict[str, float]]:
        if enqueues:
            return await _timed_fill(on, "enqueue", items)
        await on.fill("fill_ordered", items, keys=keys)
        answer = await on.drain(items, whole=True, verb="drain_ordered", keys=keys)
        return rate(answer), answer

    what = "bulk enqueue" if enqueues else f"drain ordered by {keys:,} keys"
    return await attempt(bench, bench.ours, what=what, unit="/s", run=run)


async def _outbox(
    bench: Bench,
    what: str,
    *,
    poison_every: int | None = None,
    seals: bool = True,
    searches: bool = False,
) -> Measurement:
    """Measure the outbox: the instructions of participants whose head is sound."""
    items, participants = bench.sizes.instructions, bench.sizes.participants
    healthy = sum(not is_poisoned(each % participants, poison_every) for each in range(items))

    async def run(on: Stage) -> tuple[float, dict[str, float]]:
        await on.fill("fill_outbox", items, participants=participants)
        answer = await on.drain(
            healthy,
            whole=True,
            verb="drain_outbox",
            keys=participants,
            poison_every=poison_every,
            seals=seals,
        )
        found = await _search(on, items) if searches else {}
        return rate(answer), {**answer, **found}

    return await attempt(bench, OUTBOX, what=what, unit="/s", run=run)


async def _search(on: Stage, rows: int) -> dict[str, float]:
    on.bench.report.doing(f"{on.child.name}: search one changed row of {rows:,}")
    answer = await on.child.call("find_tampered", rows=rows)
    seconds = number(answer, "seconds") * MILLION / number(answer, "rows")
    return {"search_seconds": seconds, "is_found": float(number(answer, "faults") == 1)}


async def _accept(bench: Bench) -> Measurement:
    async def run(on: Stage) -> tuple[float, dict[str, float]]:
        return await _timed_fill(
            on,
            "fill_outbox",
            bench.sizes.instructions,
            participants=bench.sizes.participants,
        )

    return await attempt(bench, OUTBOX, what="instructions accepted", unit="/s", run=run)


async def _timed_fill(
    on: Stage, verb: str, items: int, **more: object
) -> tuple[float, dict[str, float]]:
    await on.bench.quiet()
    on.bench.report.doing(f"{on.child.name}: {verb} {items:,}", items)
    with on.bench.watched() as others:
        answer = numbers(
            await on.child.call(
                verb, first=0, items=items, progress=on.bench.report.progress, **more
            )
        )
    return rate(answer), {**answer, OTHERS: others.percent}


def _name(bench: Bench, what: str) -> str:
    return f"{bench.sizes.instructions:,} {what}, {bench.sizes.participants:,} participants"


def _turns(bench: Bench) -> int:
    """A fill of a million takes minutes, so there are at most three turns."""
    return min(3, bench.sizes.rounds)
