"""Payment rails under seeded faults: the first seeds of `make fault`, which runs any number."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.fault.outbox_seeds.batch import find_missed, print_summary, run_seeds
from tests.fault.outbox_seeds.plan import MODES, find_labels, make_plan
from tests.fault.outbox_seeds.run import RunFailed, RunReport

SEEDS = range(1, 51)
JOBS = 3


@pytest.mark.timeout(1_800)
@pytest.mark.covers("E28", "E73", "E74")
async def test_no_fault_pays_twice_or_loses_or_reorders_an_instruction(tmp_path: Path) -> None:
    """The ledger of the rail decides; a failure prints its seed, its plan and its folder."""
    outcomes = await run_seeds(SEEDS, jobs=JOBS, keep_in=tmp_path)

    print_summary(outcomes)
    assert [str(each) for each in outcomes if isinstance(each, RunFailed)] == []
    assert find_missed(_reports(outcomes)) == []


def test_a_seed_has_one_plan_and_seeds_have_all_rails() -> None:
    """A failure is replayed by its seed alone."""
    plans = [make_plan(seed) for seed in SEEDS]

    assert plans == [make_plan(seed) for seed in SEEDS]
    assert {plan.mode for plan in plans} == set(MODES)
    assert any(plan.postgres_restart for plan in plans)


def test_the_labels_are_found_in_the_source() -> None:
    """A label that is added needs no entry here."""
    assert {"before_send", "after_record", "before_resolve_commit"} <= set(find_labels())


def _reports(outcomes: Sequence[RunReport | RunFailed]) -> list[RunReport]:
    return [each for each in outcomes if isinstance(each, RunReport)]
