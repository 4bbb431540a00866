"""`make fault`: run many seeds and print what was hit; `SEED=17` replays one."""

import argparse
import asyncio
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import monotonic

from penstock.base.log import configure
from tests.fault.outbox_seeds.batch import find_missed, print_summary, run_seeds
from tests.fault.outbox_seeds.run import RunFailed, RunReport
from tests.fault.processes import forking

KEPT = Path(tempfile.gettempdir()) / "penstock-fault"  # Folders of runs that have failed.
COMPLETE = 50  # So many seeds have every fault at least once; fewer are not expected to.
JOBS = 4  # Most of a run is waiting: for leases to expire, and for answers to be final.


class _Options(argparse.Namespace):
    seeds: int
    first: int
    seed: int | None
    jobs: int


async def _run(seeds: Sequence[int], *, jobs: int) -> list[RunReport | RunFailed]:
    """Run the seeds; after SIGTERM, as after Ctrl-C, no server is left behind."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    async with forking() as forks:
        return await run_seeds(forks, seeds, jobs=jobs, keep_in=KEPT)


def main() -> int:
    """Read the options, run, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.fault.outbox_seeds", description=__doc__)
    parser.add_argument("--seeds", type=int, default=50, help="how many seeds to run")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--seed", type=int, help="run only this seed")
    parser.add_argument("--jobs", type=int, default=JOBS, help="runs at the same time")
    options = parser.parse_args(namespace=_Options())
    chosen = range(options.first, options.first + options.seeds)
    seeds = chosen if options.seed is None else [options.seed]
    configure("error")
    started = monotonic()
    outcomes = asyncio.run(_run(seeds, jobs=options.jobs))
    print_summary(outcomes)
    print(f"{monotonic() - started:.0f} s")
    is_failed = any(isinstance(each, RunFailed) for each in outcomes)
    is_vacuous = len(outcomes) >= COMPLETE and bool(find_missed(outcomes))
    return 1 if is_failed or is_vacuous else 0


if __name__ == "__main__":
    sys.exit(main())
