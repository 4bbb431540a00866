"""How long to wait: pure arithmetic, and what a lane makes of it."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import Retry
from penstock.kernel.backoff import Backoff
from penstock.kernel.lane import Lane, set_lane
from penstock.postgres.pool import Connection
from tests.kernel.scene import DAY, NOON, SECOND, attempt_once, due_of, put

WEBHOOKS = Backoff(base=SECOND, multiplier=2, cap=3600 * SECOND, jitter=0.1, first_exponent=0)
MAILS = Backoff(base=30 * SECOND, multiplier=2, cap=3600 * SECOND, jitter=0, first_exponent=1)

policies = st.builds(
    Backoff,
    base=st.timedeltas(timedelta(milliseconds=1), DAY),
    multiplier=st.floats(1, 100),
    cap=st.timedeltas(DAY, 30 * DAY),
    jitter=st.floats(0, 1),
    first_exponent=st.integers(0, 10),
)
chances = st.floats(0, 1, exclude_max=True)


@pytest.mark.covers("B31", "B35", "B36", "B37", "B38", "B40", "B62")
def test_the_delays_of_webhooks_match_their_document() -> None:
    """Attempts 1 to 5: 1, 2, 4, 8 and 16 s, each within a tenth either way."""
    for failures, seconds in enumerate((1, 2, 4, 8, 16), start=1):
        shortest = WEBHOOKS.delay(failures, chance=0.0)
        longest = WEBHOOKS.delay(failures, chance=1 - 2**-53)

        assert shortest.total_seconds() == pytest.approx(0.9 * seconds)
        assert longest.total_seconds() == pytest.approx(1.1 * seconds)


@pytest.mark.covers("C21", "C22", "C33", "C37")
def test_the_delays_of_mails_match_their_document() -> None:
    waits = [MAILS.delay(failures, chance=0.7).total_seconds() for failures in (1, 2, 3, 4)]

    assert waits == [60, 120, 240, 480]


@pytest.mark.covers("B32", "B36", "C23")
def test_a_wait_is_the_smaller_of_the_formula_and_the_cap() -> None:
    """30 s doubled is 1920 s after the sixth failure; the seventh would be 3840 s."""
    waits = [MAILS.delay(failures, chance=0.7).total_seconds() for failures in (6, 7, 8, 100)]

    assert waits == [1920, 3600, 3600, 3600]


@pytest.mark.covers("C24", "C25", "C33")
def test_jitter_moves_a_wait_evenly_in_both_directions() -> None:
    spread = Backoff(base=30 * SECOND, jitter=0.2, first_exponent=1)

    waits = [spread.delay(1, chance=chance).total_seconds() for chance in (0, 0.25, 0.5, 0.75)]

    assert waits == pytest.approx([48, 54, 60, 66])


@given(policy=policies, failures=st.integers(1, 10_000), chance=chances)
def test_no_wait_is_negative_or_above_the_cap(
    policy: Backoff, failures: int, chance: float
) -> None:
    wait = policy.delay(failures, chance=chance)

    assert timedelta(0) <= wait <= policy.cap


@pytest.mark.covers("B32", "B33", "C35")
@given(policy=policies, chance=chances)
def test_the_cap_holds_after_the_jitter(policy: Backoff, chance: float) -> None:
    assert policy.delay(10_000, chance=chance) <= policy.cap


@pytest.mark.covers("B33", "C35")
def test_at_the_cap_jitter_only_shortens_a_wait() -> None:
    waits = [WEBHOOKS.delay(100, chance=chance).total_seconds() for chance in (0, 0.25, 0.5, 0.9)]

    assert waits == pytest.approx([3240, 3420, 3600, 3600])


@pytest.mark.covers("C27")
@given(policy=policies, failures=st.integers(1, 1_000), chances=st.tuples(chances, chances))
def test_without_jitter_the_delay_is_not_random(
    policy: Backoff, failures: int, chances: tuple[float, float]
) -> None:
    steady = Backoff(
        base=policy.base,
        multiplier=policy.multiplier,
        cap=policy.cap,
        jitter=0,
        first_exponent=policy.first_exponent,
    )

    assert len({steady.delay(failures, chance=chance) for chance in chances}) == 1


@given(policy=policies, failures=st.integers(1, 1_000), chance=chances)
def test_waits_never_shrink_from_one_failure_to_the_next(
    policy: Backoff, failures: int, chance: float
) -> None:
    assert policy.delay(failures, chance=chance) <= policy.delay(failures + 1, chance=chance)


@pytest.mark.covers("B34", "C26", "C33")
async def test_a_lane_waits_by_its_own_policy(db: Connection, lane: Lane) -> None:
    """The numbers of mails, through the database: each instant is the settle plus the wait."""
    lane = await set_lane(
        db, lane.name, who="test", backoff_base=30 * SECOND, backoff_first_exponent=1
    )
    item_id = await put(db, lane)
    now = NOON

    for seconds in (60, 120, 240, 480):
        await attempt_once(db, lane, Retry("421"), now=now)
        assert await due_of(db, item_id) == now + timedelta(seconds=seconds)
        now = await due_of(db, item_id)


async def test_a_lanes_jitter_spreads_its_retries(db: Connection, lane: Lane) -> None:
    lane = await set_lane(db, lane.name, who="test", backoff_base=100 * SECOND, backoff_jitter=0.5)
    items = [await put(db, lane, n) for n in range(50)]

    await attempt_once(db, lane, Retry("503"))

    waits = [(await due_of(db, item_id) - NOON).total_seconds() for item_id in items]
    assert 50 <= min(waits) < 100 < max(waits) <= 150
