"""The database functions of slots compared with the oracle, on random histories."""

import asyncio
import os
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from penstock.calendar.calendar import WEEKDAYS, Blackout, Calendar, Hours
from penstock.postgres.pool import Connection, Pool, connect
from tests.domains.slots.histories import SECOND, START, Step, histories, some_rule
from tests.domains.slots.machine import Machine
from tests.domains.slots.oracle import Rule

# The same examples in every run, so that a build does not fail at random. To search further, set
# the number of examples; then each run has new ones, and a failure prints how to reproduce it.
EXAMPLES = os.environ.get("PENSTOCK_MODEL_EXAMPLES")
# Without shrinking by default: a build should fail early, and shrinking takes minutes.
PHASES = [Phase.generate] if EXAMPLES is None else [Phase.generate, Phase.shrink]


@pytest.mark.timeout(600 if EXAMPLES is None else 86_400)
@pytest.mark.covers("D9")
def test_the_database_and_the_oracle_agree_on_random_histories(dsn: str) -> None:
    """Assignments, cancellations, new rules, calendars and reflows, in any order."""
    with asyncio.Runner() as runner:
        db = runner.run(connect(dsn))

        @settings(
            max_examples=int(EXAMPLES or 200),
            derandomize=EXAMPLES is None,
            database=None,
            deadline=None,
            print_blob=True,
            phases=PHASES,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        )
        @given(rules=st.tuples(some_rule, some_rule), history=histories)
        def compare(rules: tuple[Rule, Rule], history: list[Step]) -> None:
            runner.run(_play(db, rules, history))

        compare()

        runner.run(db.close())


async def _play(db: Connection, rules: tuple[Rule, Rule], history: list[Step]) -> None:
    """Play one example and roll it back, so that examples do not see each other's slots."""
    transaction = db.transaction()
    await transaction.start()
    try:
        await Machine(db).play(rules, history)
    finally:
        await transaction.rollback()


# ------------------------------------------------------------------------ former differences

PLAIN = Rule(window_size=4 * SECOND, max_per_window=4)


def rule_of(seconds: int, capacity: int, **more: Any) -> Rule:
    return Rule(window_size=seconds * SECOND, max_per_window=capacity, **more)


def change(**fields: Any) -> Step:
    return "change", {"name": "left", "fields": fields}


def batch(*seconds: float) -> Step:
    wishes = [(f"event-{number}", each * SECOND) for number, each in enumerate(seconds)]
    return "assign_batch", {"name": "left", "wishes": wishes}


def burst(count: int) -> Step:
    return "assign_burst", {"name": "left", "offset": 0 * SECOND, "count": count}


def calendar_of(*hours: Hours, **more: Any) -> Calendar:
    return Calendar(time_zone="UTC", hours=hours, **more)


AT_NOON = Hours(days=WEEKDAYS, opens="12:00", closes="12:01")
LATER = Hours(days=WEEKDAYS, opens="12:04", closes="12:05")
ON_WEDNESDAYS = Hours(days=("wed",), opens="12:00", closes="12:01")
HOLE = Blackout(from_at=START + 8 * SECOND, until_at=START + 9 * SECOND)

HISTORIES: dict[str, tuple[Rule, list[Step]]] = {
    "a window has two parts and no cell between them": (
        rule_of(60, 2, calendar=calendar_of(blackouts=(HOLE,))),
        [batch(0, 7), change()],
    ),
    "a window with older slots is cut by a change of size": (
        rule_of(20, 6),
        [batch(15), change(max_per_window=1), change(window_size=SECOND)],
    ),
    "random instants move to hours that begin within a window": (
        rule_of(600, 100, spacing="random", calendar=calendar_of(LATER)),
        [
            burst(8),
            change(max_per_window=50),
            ("reflow", {"name": "left", "offset": 0 * SECOND, "is_dry_run": False}),
        ],
    ),
    "an event after the cut-off precedes one with a later cut-off on that day": (
        rule_of(1, 2, calendar=calendar_of(cut_off="00:00")),
        [change(window_size=90 * SECOND, calendar=calendar_of()), batch(60, 104)],
    ),
    "a place is taken by a slot from windows of another size": (
        rule_of(2, 1, calendar=calendar_of(AT_NOON, cut_off_policy="overbook")),
        [burst(80), change(window_size=20 * SECOND, max_per_window=2), burst(20)],
    ),
    "slots are beyond the known part of the calendar": (
        rule_of(600, 1, calendar=calendar_of(ON_WEDNESDAYS)),
        [burst(10), change(), burst(5)],
    ),
}


@pytest.mark.parametrize("situation", HISTORIES)
async def test_the_database_and_the_oracle_agree_when(db: Pool, situation: str) -> None:
    """The search above found each of these; they are too rare for the examples of a build."""
    first, history = HISTORIES[situation]

    async with db.acquire() as connection:
        await _play(connection, (first, PLAIN), history)
