"""Payment rails under seeded faults: the first seeds of `make fault`, which runs any number."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.fault.outbox_seeds.batch import find_missed, print_summary, run_seeds
from tests.fault.outbox_seeds.plan import (
    BRIEF_KEY_SECONDS,
    FINAL_SECONDS,
    MODES,
    Mode,
    find_labels,
    make_plan,
)
from tests.fault.outbox_seeds.run import RunFailed
from tests.fault.outbox_seeds.traffic import Line, find_forbidden
from tests.fault.processes import ForkServer

SEEDS = range(1, 51)
JOBS = 3


@pytest.mark.timeout(1_800)
@pytest.mark.covers("E28", "E73", "E74")
async def test_no_fault_pays_twice_or_loses_or_reorders_an_instruction(
    forks: ForkServer, tmp_path: Path
) -> None:
    """The ledger of the rail decides; a failure prints its seed, its plan and its folder."""
    outcomes = await run_seeds(forks, SEEDS, jobs=JOBS, keep_in=tmp_path)

    print_summary(outcomes)
    assert [str(each) for each in outcomes if isinstance(each, RunFailed)] == []
    assert find_missed(outcomes) == [], "these faults have not happened in any run"


def test_a_seed_has_one_plan_and_seeds_have_all_rails() -> None:
    """A failure is replayed by its seed alone."""
    plans = [make_plan(seed) for seed in SEEDS]

    assert plans == [make_plan(seed) for seed in SEEDS]
    assert {plan.mode for plan in plans} == set(MODES)
    assert any(plan.postgres_restart for plan in plans)


def test_the_labels_are_found_in_the_source() -> None:
    """A label that is added needs no entry here."""
    assert {"before_send", "after_record", "before_resolve_commit"} <= set(find_labels())


def pay(at: float, code: str | None = None) -> list[Line]:
    """A payment, and the answer to it if there is one."""
    request = str(at)
    paid = Line(what="pay", at=at, key="k", outbox_id="o", request=request)
    if code is None:
        return [paid]
    return [paid, Line(what="answer", at=at, key="k", request=request, code=code)]


def query(at: float, code: str = "NOT_FOUND") -> list[Line]:
    return [Line(what="query", at=at, since=at, key="k", code=code)]


@pytest.mark.parametrize(
    ("mode", "lines", "released_at"),
    [
        pytest.param("key", [*pay(0), *pay(1)], (), id="same key"),
        pytest.param("brief", [*pay(0), *pay(1)], (), id="valid key"),
        pytest.param("both", [*pay(0), *query(1), *pay(2)], (), id="query"),
        pytest.param(
            "query", [*pay(0), *query(FINAL_SECONDS), *pay(2)], (), id="query that is final"
        ),
        pytest.param(
            "query", [*pay(0), *query(1, "RETURNED"), *pay(2)], (), id="query that says returned"
        ),
        pytest.param("query", [*pay(0, "BUSY"), *query(1), *pay(1.1)], (), id="refused, query"),
        pytest.param("neither", [*pay(0, "BUSY"), *pay(1)], (), id="refused"),
        pytest.param("neither", [*pay(0), *pay(2)], (1,), id="released"),
    ],
)
def test_a_payment_that_may_be_sent_again_is_no_failure(
    mode: Mode, lines: Sequence[Line], released_at: Sequence[float]
) -> None:
    """A proof that fails without a reason is switched off."""
    assert find_forbidden(lines, mode, releases={"o": released_at}) == []


@pytest.mark.parametrize(
    ("mode", "lines", "released_at"),
    [
        pytest.param("brief", [*pay(0), *pay(BRIEF_KEY_SECONDS)], (), id="key is not valid"),
        pytest.param("both", [*pay(0), *pay(1)], (), id="no query"),
        pytest.param("both", [*query(0), *pay(1), *pay(2)], (), id="query before the first"),
        pytest.param("both", [*pay(0), *query(1, "PAID"), *pay(2)], (), id="query found it"),
        pytest.param("query", [*pay(0), *query(1), *pay(2)], (), id="not final"),
        pytest.param("neither", [*pay(0), *pay(1)], (), id="nobody decided"),
        pytest.param("neither", [*pay(1), *pay(2)], (0,), id="released before"),
    ],
)
def test_a_payment_that_must_not_be_sent_again_is_found(
    mode: Mode, lines: Sequence[Line], released_at: Sequence[float]
) -> None:
    """A rail that recognises keys books once; only its requests show that it was sent twice."""
    assert len(find_forbidden(lines, mode, releases={"o": released_at})) == 1
