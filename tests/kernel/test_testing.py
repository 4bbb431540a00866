"""The helper that users get for their own tests: due items run to the end, on a fake clock."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from penstock import Dead, Done, Hold, Item, NewItem, Penstock, Retry, Snooze
from penstock.kernel.inspect import read_attempts
from penstock.kernel.lane import pause_lane, set_lane
from penstock.postgres.pool import Connection
from penstock.testing import FakeClock, run_due, run_to_end
from tests.kernel.scene import HOUR, MINUTE, NOON, SECOND, state_of


@pytest.fixture
def app(dsn: str) -> Penstock:
    return Penstock(dsn)


async def test_what_is_due_runs_and_what_is_not_waits(app: Penstock, clock: FakeClock) -> None:
    @app.handler("mail")
    async def send(item: Item[str]) -> Done:
        return Done(item.payload.upper())

    async with app:
        first = await app.enqueue("mail", "now")
        await app.enqueue("mail", "later", due_at=clock.now() + HOUR)

        (attempted,) = await run_due(app, clock)
        assert (attempted.item_id, attempted.lane) == (first.id, "mail")
        assert (attempted.outcome, attempted.at) == (Done("NOW"), NOON)

        clock.advance(HOUR)
        assert [each.outcome for each in await run_due(app, clock)] == [Done("LATER")]
        assert await run_due(app, clock) == []


async def test_retries_run_at_their_instants_until_the_end(
    app: Penstock, db: Connection, clock: FakeClock
) -> None:
    """The clock advances from one due instant to the next without waiting."""

    @app.handler("mail", backoff_base=30 * SECOND, backoff_first_exponent=1, backoff_jitter=0)
    async def fail(item: Item[str]) -> Retry:
        return Retry(f"try {item.attempt}")

    async with app:
        accepted = await app.enqueue("mail", "x", due_at=clock.now() + MINUTE)
        ran = await run_to_end(app, clock)

    waits = [(later.at - earlier.at).total_seconds() for earlier, later in pairwise(ran)]
    assert ran[0].at == NOON + MINUTE
    assert waits == [60, 120, 240, 480]
    assert clock.now() == ran[-1].at
    assert await state_of(db, accepted.id) == "dead"
    settled = [each.settled_at for each in await read_attempts(db, accepted.id)]
    assert settled == [each.at for each in ran]


async def test_a_rate_is_kept_on_the_fake_clock(app: Penstock, clock: FakeClock) -> None:
    @app.handler("mail", rate=10)
    async def send(_: Item[int]) -> None: ...

    async with app:
        await app.enqueue_many("mail", [NewItem(payload=n) for n in range(5)])
        ran = await run_to_end(app, clock)

    assert [each.at - NOON for each in ran] == [n * SECOND / 10 for n in range(5)]


async def test_a_buffer_starts_nothing_early(app: Penstock, clock: FakeClock) -> None:
    @app.handler("mail", pre_start_buffer=MINUTE)
    async def send(_: Item[int]) -> None: ...

    async with app:
        await app.enqueue("mail", 1, due_at=NOON + SECOND)
        assert await run_due(app, clock) == []
        (attempted,) = await run_to_end(app, clock)

    assert attempted.at == NOON + SECOND


async def test_until_stops_the_clock(app: Penstock, clock: FakeClock) -> None:
    @app.handler("mail")
    async def send(_: Item[int]) -> None: ...

    async with app:
        for hours in (1, 2, 3):
            await app.enqueue("mail", hours, due_at=NOON + hours * HOUR)
        ran = await run_to_end(app, clock, until=NOON + 2 * HOUR + MINUTE)

    assert len(ran) == 2
    assert clock.now() == NOON + 2 * HOUR + MINUTE


async def test_followers_and_several_lanes_run_too(app: Penstock, clock: FakeClock) -> None:
    seen: list[str] = []

    @app.handler("first", ordering="per_key")
    async def first(item: Item[str]) -> None:
        seen.append(item.payload)
        await app.enqueue("second", item.payload + "!", due_at=clock.now())

    @app.handler("second")
    async def second(items: list[Item[str]]) -> list[Done]:
        seen.extend(item.payload for item in items)
        return [Done()] * len(items)

    async with app:
        for payload in ("a", "b"):
            await app.enqueue("first", payload, order_key="k")
        ran = await run_due(app, clock)

    assert len(ran) == 4
    assert [each for each in seen if each in {"a", "b"}] == ["a", "b"]


async def test_deadlines_and_pauses_hold(app: Penstock, db: Connection, clock: FakeClock) -> None:
    @app.handler("mail")
    async def send(_: Item[int]) -> None: ...

    async with app:
        late = await app.enqueue("mail", 1, due_at=NOON, not_after=NOON + MINUTE)
        clock.advance(HOUR)
        assert await run_due(app, clock) == []
        waiting = await app.enqueue("mail", 2)
        await pause_lane(db, "mail", who="test")
        assert await run_to_end(app, clock) == []

    assert await state_of(db, late.id) == "dead"
    assert await state_of(db, waiting.id) in {"ready", "scheduled"}


async def test_what_is_held_or_dead_is_the_end(app: Penstock, clock: FakeClock) -> None:
    @app.handler("mail")
    async def send(item: Item[str]) -> Hold | Dead:
        return Hold("?") if item.payload == "hold" else Dead("no")

    async with app:
        await app.enqueue("mail", "hold")
        await app.enqueue("mail", "dead")
        ran = await run_to_end(app, clock)

    assert [each.outcome for each in ran] == [Hold("?"), Dead("no")]


@pytest.mark.parametrize("run", [run_due, run_to_end])
async def test_a_handler_that_never_ends_an_item_raises_after_attempts_max(
    app: Penstock, clock: FakeClock, run: type
) -> None:
    @app.handler("mail")
    async def put_off(_: Item[int]) -> Snooze:
        return Snooze(timedelta(0))

    async with app:
        await app.enqueue("mail", 1)
        with pytest.raises(AssertionError, match="20 attempts did not finish"):
            await run(app, clock, attempts_max=20)


async def test_a_fake_clock_may_be_behind_the_database(app: Penstock, db: Connection) -> None:
    """Items are accepted by the database's clock; a fake clock may be behind it."""

    @app.handler("mail", dispatch_interval=5 * SECOND)
    async def send(_: Item[int]) -> None: ...

    clock = FakeClock(datetime(2020, 1, 1, tzinfo=UTC))
    async with app:
        await app.enqueue("mail", 1)
        await set_lane(db, "mail", who="test", batch_size=1)
        await app.enqueue("mail", 2)
        first, second = await run_to_end(app, clock)

    assert second.at - first.at >= 5 * SECOND
