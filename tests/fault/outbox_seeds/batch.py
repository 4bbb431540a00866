"""Many runs: seeds one after the other, a few at a time, and what they have hit together."""

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from penstock.base.aio import spawn
from tests.fault.outbox_seeds.plan import count_chosen, find_labels, make_plan
from tests.fault.outbox_seeds.processes import ForkServer, forking
from tests.fault.outbox_seeds.run import RunFailed, RunReport, opened_site, run_seed


async def run_seeds(
    seeds: Sequence[int], *, jobs: int, keep_in: Path
) -> list[RunReport | RunFailed]:
    """Run seeds, a few at a time; return what each has done, or how it failed."""
    outcomes: list[RunReport | RunFailed] = []
    waiting = iter(seeds)
    async with forking() as forks, asyncio.TaskGroup() as group:
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
    faults = ", ".join(f"{how} {what}" for how, what in sorted(report.hits))
    print(
        f"seed {report.seed}: {report.mode}, {report.seconds:.1f} s, {states}, "
        f"{report.flagged} flagged; {faults or 'no fault of a process'}",
        flush=True,
    )


def print_summary(outcomes: Sequence[RunReport | RunFailed]) -> None:
    """Print the totals, how often each fault has happened, and the labels that were not hit."""
    reports = [each for each in outcomes if isinstance(each, RunReport)]
    failures = [each for each in outcomes if isinstance(each, RunFailed)]
    hits = count_hits(reports)
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
    for how, what in (("kill", "simulator"), ("kill", "postgres"), ("fast", "postgres")):
        print(f"{f'{what} ({how})':40}{hits[how, what]:>8}")
    chosen = sum((count_chosen(make_plan(each.seed)) for each in reports), Counter[str]())
    for what, count in sorted(chosen.items()):
        print(f"{what:40}{count:>8}")
    missed = find_missed(reports)
    if missed:
        print(f"no worker was killed at: {', '.join(missed)}")
    if failures:
        print(f"failed seeds: {' '.join(str(failed.seed) for failed in failures)}")


def count_hits(reports: Sequence[RunReport]) -> Counter[tuple[str, ...]]:
    """Return how often a process was killed or stopped, and where."""
    return sum((report.hits for report in reports), Counter[tuple[str, ...]]())


def find_missed(reports: Sequence[RunReport]) -> list[str]:
    """Return the labels at which no worker was killed."""
    hits = count_hits(reports)
    return [label for label in find_labels() if not hits["kill", label]]
