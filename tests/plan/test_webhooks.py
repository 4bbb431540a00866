"""Events are accepted, loaded and read without a walk over those that there are.

Judged as the kernel's statements are: by the pages they touch, with 50,000 events around.
"""

import pytest

from penstock.domains.webhooks import accept, inspect, loader
from penstock.domains.webhooks.event import NewEvent
from tests.plan.explain import Explainer

PAGES_PER_EVENT = 60  # Rows and indexes of event, id, item and ready; of partitions, several.
PAGES_ONCE = 400


def assert_bounded(explainer: Explainer, query: str, *, events: int) -> None:
    explained = explainer.of(query)
    assert explained.walked == []
    assert explained.buffers <= PAGES_ONCE + PAGES_PER_EVENT * events, explained.buffers


def new_event(number: int) -> NewEvent:
    return NewEvent(type=f"kind-{number}.made", data='{"n": 1}', id=f"new-{number}")


@pytest.mark.parametrize("count", [1, 300])
async def test_events_are_accepted_at_the_cost_of_their_own_number(
    explainer: Explainer, count: int
) -> None:
    """Neither the events before them nor the subscriptions of others are looked at."""
    events = [new_event(number) for number in range(1, count + 1)]

    accepted = await accept.accept_events(explainer.connection(), events)

    assert [each.deliveries for each in accepted] == [1] * count
    assert_bounded(explainer, accept.ACCEPT, events=count)


async def test_a_known_event_is_found_at_once(explainer: Explainer) -> None:
    data = '{"n": 1, "text": "' + "x" * 200 + '"}'
    known = NewEvent(type="kind-1.made", data=data, id="evt-10001")

    (accepted,) = await accept.accept_events(explainer.connection(), [known])

    assert accepted.outcome == "existing"
    assert_bounded(explainer, accept.ACCEPT, events=1)


async def test_a_batch_of_deliveries_is_loaded_by_its_keys(explainer: Explainer) -> None:
    rows = await explainer.db.fetch(
        "SELECT event_no, subscription_nos[1] AS subscription_no FROM penstock.webhook_event "
        "WHERE event_id LIKE 'evt-77__'"
    )
    numbers = [row["event_no"] for row in rows], [row["subscription_no"] for row in rows]

    loaded = await explainer.fetch(loader.LOAD_DELIVERIES, *numbers)

    assert len(loaded) == 100
    assert_bounded(explainer, loader.LOAD_DELIVERIES, events=100)


async def test_one_event_and_its_attempts_are_read_by_their_keys(explainer: Explainer) -> None:
    event = await inspect.read_event(explainer.connection(), "default", "evt-12345")
    await inspect.list_deliveries(explainer.connection(), event.number)
    await inspect.list_attempts(explainer.connection(), event)

    assert event.status == "pending"
    for query in (inspect.READ_EVENT, inspect.LIST_DELIVERIES, inspect.LIST_ATTEMPTS):
        assert_bounded(explainer, query, events=1)


async def test_a_page_of_events_is_read_from_the_end(explainer: Explainer) -> None:
    page = await inspect.list_events(explainer.connection(), "default", limit=20)

    assert len(page) == 20
    assert_bounded(explainer, inspect.LIST_EVENTS, events=20)
