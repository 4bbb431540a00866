"""Messages become events, each once, however often they come."""

import asyncio

from penstock.base.aio import outcome_of
from penstock.domains.webhooks.accept import BATCH_BYTES_MAX, accept_messages
from penstock.postgres.errors import DatabaseAway
from penstock.postgres.pool import Pool
from tests.integrations.kafka.scene import (
    count_events,
    event,
    nobody_accepts,
    subscribe,
    until_blocked,
)

DATA_BYTES_MAX = 262_144


async def accept(db: Pool, *values: bytes | None, first: int = 0) -> list[str | None]:
    """Accept messages that stand at offsets from `first` on."""
    messages = [(value, f"kafka-0a-0-{first + n}-0") for n, value in enumerate(values)]
    return await accept_messages(db, messages, data_bytes_max=DATA_BYTES_MAX)


async def test_messages_become_events_with_their_deliveries(dsn: str, db: Pool) -> None:
    await subscribe(dsn, "http://127.0.0.1:9/")

    reasons = await accept(db, event(id="e1"), event(id="e2", data=[1.50]))

    assert reasons == [None, None]
    assert await count_events(db) == (2, 2)
    assert await db.fetchval("SELECT data FROM penstock.events WHERE id = 'e2'") == "[1.5]"


async def test_a_message_that_comes_again_changes_nothing(dsn: str, db: Pool) -> None:
    """After a crash or a rebalance messages are read twice."""
    await subscribe(dsn, "http://127.0.0.1:9/")
    messages = [event(id="e1"), event(), event(idempotency_key="k")]

    first = await accept(db, *messages)
    again = await accept(db, *messages)

    assert first == again == [None, None, None]
    assert await count_events(db) == (3, 3)


async def test_two_messages_without_an_id_are_two_events(db: Pool) -> None:
    await accept(db, event(), event())

    assert (await count_events(db))[0] == 2


async def test_the_id_of_a_different_event_is_refused(db: Pool) -> None:
    await accept(db, event(id="e1", data=1))

    reasons = await accept(db, event(id="e2"), event(id="e1", data=2), first=1)

    assert reasons == [None, "event 'e1' was accepted before with another content"]
    assert (await count_events(db))[0] == 2


async def test_what_is_no_event_does_not_hold_up_the_others(db: Pool) -> None:
    reasons = await accept(db, event(id="e1"), b"{", None, event(id="e2"))

    assert reasons == [None, "message: Input data was truncated", "message: is empty", None]
    assert (await count_events(db))[0] == 2


async def test_an_event_that_only_the_database_refuses_does_not_spoil_the_others(
    db: Pool,
) -> None:
    """We check what we know of; what we do not know of must not stop the topic for ever."""
    await db.execute(
        "ALTER TABLE penstock.webhook_event ADD CONSTRAINT no_seven CHECK (data <> '7')"
    )

    reasons = await accept(db, event(id="e1", data=1), event(id="e7", data=7), event(id="e9"))

    assert reasons == [None, "the database refuses it: CheckViolationError", None]
    assert (await count_events(db))[0] == 2


async def test_large_messages_are_accepted_in_parts(db: Pool) -> None:
    large = "x" * (DATA_BYTES_MAX - 2)
    count = 2 * BATCH_BYTES_MAX // DATA_BYTES_MAX + 1

    reasons = await accept(db, *(event(id=f"e{n}", data=large) for n in range(count)))

    assert reasons == count * [None]
    assert (await count_events(db))[0] == count


async def test_an_unavailable_database_is_not_taken_for_a_bad_message(db: Pool) -> None:
    """Else a restart of the database would send good events to the dead topic."""
    async with nobody_accepts(db), asyncio.TaskGroup() as group:
        accepting = group.create_task(outcome_of(accept(db, event(id="e1"), b"{")))
        await until_blocked(db)
        await db.fetchval(
            """
                SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
                WHERE datname = current_database() AND wait_event_type = 'Lock'
                """
        )

    assert isinstance(accepting.result(), DatabaseAway)
