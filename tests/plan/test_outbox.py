"""Instructions are accepted and read without a walk over those that there are.

Judged as the kernel's statements are: by the pages they touch, with 50,000 instructions around.
"""

import pytest

from penstock.domains.outbox import enqueue, inspect
from penstock.domains.outbox.inspect import InstructionFilter
from tests.plan.conftest import Rows
from tests.plan.explain import Explainer

PAGES_PER_INSTRUCTION = 60  # Rows and indexes of key, number, instruction, item and order key.
PAGES_ONCE = 400
PAYLOAD = '{"amount": "12.50", "currency": "EUR", "destination": {"name": "Ada"}}'


@pytest.fixture(scope="module")
def rows() -> Rows:
    """With instructions."""
    return "domains"


def assert_bounded(explainer: Explainer, query: str, *, instructions: int) -> None:
    explained = explainer.of(query)
    assert explained.walked == []
    assert explained.buffers <= PAGES_ONCE + PAGES_PER_INSTRUCTION * instructions, explained.buffers


async def send(explainer: Explainer, name: str, *, count: int) -> list[bool]:
    """Send instructions of as many participants; return which are new."""
    numbers = range(1, count + 1)
    row = await explainer.fetchrow(
        enqueue.SEND_INSTRUCTIONS,
        [f"{name}-{number}" for number in numbers],
        [f"p-{number}" for number in numbers],
        ["k-1"] * count,
        ["simulator"] * count,
        [PAYLOAD] * count,
        None,
        ["test"] * count,
        [None] * count,
    )
    assert row is not None
    return row[2]


@pytest.mark.parametrize("count", [1, 300])
async def test_instructions_are_accepted_at_the_cost_of_their_own_number(
    explainer: Explainer, count: int
) -> None:
    """Neither the instructions before them nor other participants are looked at."""
    are_new = await send(explainer, "new", count=count)

    assert are_new == [True] * count
    assert_bounded(explainer, enqueue.SEND_INSTRUCTIONS, instructions=count)


async def test_known_instructions_are_found_by_their_keys(explainer: Explainer) -> None:
    are_new = await send(explainer, "i", count=100)

    assert are_new == [False] * 100
    assert_bounded(explainer, enqueue.SEND_INSTRUCTIONS, instructions=100)


async def test_one_instruction_and_its_attempts_are_read_by_their_keys(
    explainer: Explainer,
) -> None:
    outbox_id = await explainer.db.fetchval(
        "SELECT outbox_id FROM penstock.outbox_idempotency WHERE instruction_id = 'i-12345'"
    )

    story = await inspect.read_story(explainer.connection(), outbox_id)

    assert [each.state for each in story.attempts] == ["DISPATCHING", "RETRYABLE"]
    for query in (inspect.READ_INSTRUCTION, inspect.LIST_ATTEMPTS):
        assert_bounded(explainer, query, instructions=1)


PAGES = {
    "all": (InstructionFilter(), inspect.LIST_INSTRUCTIONS, 20),
    "participant": (InstructionFilter(participant_id="p-7"), inspect.LIST_OF_PARTICIPANT, 10),
    "instruction": (InstructionFilter(instruction_id="i-7"), inspect.LIST_OF_INSTRUCTION_ID, 1),
}


@pytest.mark.parametrize("name", PAGES)
async def test_a_page_is_read_from_its_end(explainer: Explainer, name: str) -> None:
    only, query, found = PAGES[name]

    page = await inspect.list_instructions(explainer.connection(), only=only, limit=20)

    assert len(page.instructions) == found
    assert_bounded(explainer, query, instructions=20)
