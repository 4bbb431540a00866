"""Slots are found, taken and given back without a walk over those that are booked.

Judged as the kernel's statements are: by the pages they touch, with 400,000 slots around.
"""

from datetime import UTC, datetime, timedelta

import pytest

from penstock.domains.slots import assign, cancel, forecast, inspect
from penstock.domains.slots.assign import SlotRequest
from tests.plan.explain import Explainer

PAGES_PER_SLOT = 40
PAGES_ONCE = 250  # Fifteen statements in functions, each with a few pages of indexes.
DAY = timedelta(days=1)


def today() -> datetime:
    return datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def assert_bounded(explainer: Explainer, query: str, *, slots: int) -> None:
    explained = explainer.of(query)
    assert explained.walked == []
    assert explained.buffers <= PAGES_ONCE + PAGES_PER_SLOT * slots, explained.buffers


@pytest.mark.covers("D80", "D90")
@pytest.mark.parametrize("days", [0, 40, 40.05, 55, 300])
async def test_the_next_request_for_any_time_is_answered_at_once(
    explainer: Explainer, days: float
) -> None:
    """Before a burst, at its start, in its middle, between single slots, and far beyond."""
    request = SlotRequest("next", today() + days * DAY)

    slot = await assign.assign(explainer.connection(), "default", request)

    assert slot.event_id == "next"
    assert_bounded(explainer, assign.ASSIGN, slots=1)


async def test_a_batch_costs_by_its_own_size(explainer: Explainer) -> None:
    requests = [SlotRequest(f"new-{n}", today() + 40 * DAY) for n in range(1_000)]

    await assign.assign_many(explainer.connection(), "default", requests)

    assert_bounded(explainer, assign.ASSIGN, slots=1_000)


@pytest.mark.covers("D33", "D34")
async def test_a_known_event_is_one_look_up(explainer: Explainer) -> None:
    """Its cost does not grow with what is booked, and nothing is written."""
    request = SlotRequest("burst-77", today() + 40 * DAY)

    (assigned,) = await assign.assign_many(explainer.connection(), "default", [request])

    assert assigned.outcome == "existing"
    assert_bounded(explainer, assign.ASSIGN, slots=0)


async def test_a_cancellation_touches_one_run(explainer: Explainer) -> None:
    await cancel.cancel(explainer.connection(), "burst-5000", who="test")

    assert_bounded(explainer, cancel.CANCEL, slots=1)


async def test_a_page_of_slots_is_read_by_its_index(explainer: Explainer) -> None:
    """A day is read at most before the page begins, which is the longest window there can be."""
    page = await inspect.list_slots(
        explainer.connection(),
        "default",
        from_at=today() + 55 * DAY,
        until_at=today() + 60 * DAY,
        created_from=today() - DAY,
        after=(today(), -1),
        limit=100,
    )

    assert len(page) == 100
    assert explainer.of(inspect.LIST_SLOTS).walked == []


async def test_a_forecast_of_ten_million_reads_no_slot(explainer: Explainer) -> None:
    """It adds up gaps between runs: its cost grows with their number, not with the slots'."""
    found = await forecast.forecast(
        explainer.connection(), "default", count=10_000_000, from_at=today() + 40 * DAY
    )

    assert found.windows >= 100_000
    explained = explainer.of(forecast.FORECAST)
    assert not any(node.get("Relation Name") == "slot" for node in explained.nodes())


async def test_a_heat_map_reads_no_slot(explainer: Explainer) -> None:
    buckets = await inspect.heat_map(
        explainer.connection(),
        "default",
        from_at=today() + 40 * DAY,
        until_at=today() + 41 * DAY,
        buckets=24,
    )

    assert sum(bucket.booked for bucket in buckets) == 300_000
    explained = explainer.of(inspect.HEAT_MAP)
    assert not any(node.get("Relation Name") == "slot" for node in explained.nodes())
