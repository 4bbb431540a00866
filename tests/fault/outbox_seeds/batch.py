"""Many runs: seeds one after the other, a few at a time, and what they have hit together."""

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from penstock.base.aio import spawn
from tests.fault.outbox_seeds.plan import (
    MODES,
    ORDER_FAULTS,
    VERBS,
    count_chosen,
    find_labels,
    make_plan,
)
from tests.fault.outbox_seeds.run import RunFailed, RunReport, opened_site, run_seed
from tests.fault.processes import ForkServer

# What happens in a set of runs besides kills and stops of workers, as words of the record.
HAPPENINGS: Sequence[tuple[str, str]] = (
    ("continue", "worker"),
    ("kill", "simulator"),
    ("kill", "api"),
    ("kill", "postgres"),
    ("fast", "postgres"),
    ("skew", "worker"),
    ("skew", "api"),
    *(("order", name) for name in ORDER_FAULTS),
    *(("report", status) for status in ("paid", "settled", "returned", "refused")),
    *(("report", outcome) for outcome in ("applied", "recorded", "known")),
    *(("operate", verb) for verb in (*VERBS, "start")),
    ("renew", "accepted"),
    *(("repeat", mode) for mode in MODES),  # A payment that was sent again.
)


async def run_seeds(
    forks: ForkServer, seeds: Sequence[int], *, jobs: int, keep_in: Path
) -> list[RunReport | RunFailed]:
    """Run seeds, a few at a time; return what each has done, or how it failed."""
    outcomes: list[RunReport | RunFailed] = []
    waiting = iter(seeds)
    async with asyncio.TaskGroup() as group:
        for _ in range(min(jobs, len(seeds))):
            spawn(group, _run_some(forks, waiting, outcomes, keep_in=keep_in))
    return outcomes


async def _run_some(
    forks: ForkServer,
    waiting: Iterator[int],
    outcomes: list[RunReport | RunFailed],
    *,
    keep_in: Path,
) -> None:
    async with opened_site(forks) as site:
        for seed in waiting:
            try:
                report = await run_seed(site, seed, keep_in=keep_in)
            except RunFailed as failed:
                outcomes.append(failed)
                print(failed, flush=True)
            else:
                outcomes.append(report)
                _print_run(report)


def _print_run(report: RunReport) -> None:
    states = " ".join(f"{count} {state}" for state, count in sorted(report.states.items()))
    ends = [hit for hit in sorted(report.hits) if hit[0] in {"kill", "stop", "fast"}]
    faults = ", ".join(f"{how} {what}" for how, what in ends)
    print(
        f"seed {report.seed}: {report.mode}, {report.seconds:.1f} s, {states}, "
        f"{report.flagged} flagged; {faults or 'no fault of a process'}",
        flush=True,
    )


def print_summary(outcomes: Sequence[RunReport | RunFailed]) -> None:
    """Print the totals, how often each fault has happened, and the labels that were not hit."""
    reports = [each for each in outcomes if isinstance(each, RunReport)]
    failures = [each for each in outcomes if isinstance(each, RunFailed)]
    hits = count_hits(outcomes)
    states = sum((report.states for report in reports), Counter[str]())
    print(f"\n{len(outcomes)} runs, {len(failures)} failed")
    print(f"instructions {sum(report.instructions for report in reports)}", end=", ")
    print(f"bookings {sum(report.bookings for report in reports)}", end=", ")
    print(f"flagged as unknown to a person {sum(report.flagged for report in reports)}")
    print(", ".join(f"{count} {state}" for state, count in sorted(states.items())))
    print(f"\n{'label':26}{'kill':>8}{'stop':>8}")
    for label in find_labels():
        print(f"{label:26}{hits['kill', label]:>8}{hits['stop', label]:>8}")
    print()
    for how, what in HAPPENINGS:
        print(f"{f'{how} {what}':40}{hits[how, what]:>8}")
    chosen = sum((count_chosen(make_plan(each.seed)) for each in reports), Counter[str]())
    for what, count in sorted(chosen.items()):
        print(f"{what:40}{count:>8}")
    missed = find_missed(outcomes)
    if missed:
        print(f"did not happen: {', '.join(missed)}")
    if failures:
        print(f"failed seeds: {' '.join(str(failed.seed) for failed in failures)}")


def count_hits(outcomes: Sequence[RunReport | RunFailed]) -> Counter[tuple[str, ...]]:
    """Return how often each fault has happened."""
    return sum((each.hits for each in outcomes), Counter[tuple[str, ...]]())


def find_missed(outcomes: Sequence[RunReport | RunFailed]) -> list[str]:
    """Return the faults that have not happened: what a set of runs shows nothing about.

    A kill is aimed at each label in turn, and a stop at any of them.
    """
    hits = count_hits(outcomes)
    labels = find_labels()
    missed = [f"kill {label}" for label in labels if not hits["kill", label]]
    missed += [] if any(hits["stop", label] for label in labels) else ["stop"]
    return missed + [f"{how} {what}" for how, what in HAPPENINGS if not hits[how, what]]
