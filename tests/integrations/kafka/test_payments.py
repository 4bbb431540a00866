"""Payments come through a topic, each once; what cannot be scheduled goes to the dead topic."""

import re
from pathlib import Path

import msgspec
import pytest

from penstock.domains.payments.batcher import PaymentBatcher
from penstock.domains.payments.messages import accept_messages
from penstock.domains.payments.schedule import Payments
from penstock.postgres.errors import DatabaseAway
from penstock.postgres.pool import Pool, open_pool
from tests.domains.payments.own_steps import BLOCKED_IBAN, write_ours
from tests.domains.payments.scene import a_body
from tests.e2e.command import penstock
from tests.integrations.kafka.scene import Stream

CONSUME = ("kafka", "consume", "payments")


def message(payment_id: str = "p-1", **more: object) -> bytes:
    return msgspec.json.encode(a_body(payment_id, **more))


def environment(dsn: str, stream: Stream) -> dict[str, str]:
    return {
        "PENSTOCK_DATABASE_URL": dsn,
        "PENSTOCK_KAFKA_BOOTSTRAP": stream.broker.bootstrap,
        "PENSTOCK_PAYMENTS_KAFKA_TOPIC": stream.topic,
        "PENSTOCK_PAYMENTS_KAFKA_DEAD_TOPIC": stream.dead_topic,
        "PENSTOCK_PAYMENTS_KAFKA_GROUP": stream.group,
    }


async def accept(db: Pool, *values: bytes | None) -> list[str | None]:
    batcher = PaymentBatcher(Payments(pool=db))
    return await accept_messages(batcher, [(value, f"kafka-{n}") for n, value in enumerate(values)])


async def scheduled(db: Pool) -> list[str]:
    rows = await db.fetch("SELECT payment_id FROM penstock.payment ORDER BY 1")
    return [row[0] for row in rows]


async def test_messages_are_scheduled_once_however_often_they_come(db: Pool) -> None:
    first = await accept(db, message("p-1"), message("p-2"))
    again = await accept(db, message("p-1"), message("p-2"))

    assert first == again == [None, None]
    assert await scheduled(db) == ["p-1", "p-2"]


async def test_what_can_never_be_scheduled_has_a_reason_without_the_message(db: Pool) -> None:
    await accept(db, message("known"))

    reasons = await accept(
        db,
        None,
        b"\xff",
        b'{"payment_id": "p-1"',
        message("p-2", amount=12.5),
        message("p-3", debtor={"name": "Ada", "iban": "DE00"}),
        message("known", amount="1"),
        message("p-4", item_type="INVOICE"),
        message("p-5"),
    )

    assert [reason is None for reason in reasons] == [False] * 7 + [True]
    assert reasons[0] == "message: is empty"
    assert reasons[4] == (
        "debtor.iban: is not an IBAN: its length, format or check digits are wrong"
    )
    assert "exists with other content" in str(reasons[5])
    assert await scheduled(db) == ["known", "p-5"]


async def test_a_field_that_is_not_known_is_refused_with_its_name(db: Pool) -> None:
    """A misspelt instant that is dropped is a payment that is paid now."""
    misspelt = a_body("p-1", executeAt="2031-01-31T16:00:00Z")
    del misspelt["execute_at"]
    nested = {"mail": "ada@example.org", "sms": "+33"}
    twice = message("p-3").replace(b'"amount"', b'"amount":"1.00","amount"')

    reasons = await accept(db, msgspec.json.encode(misspelt), message("p-2", notify=nested), twice)

    assert reasons == [
        "message: Object contains unknown field `executeAt`",
        "message: Object contains unknown field `sms` - at `$.notify`",
        "amount: is given twice in one object",
    ]
    assert await scheduled(db) == []


async def test_without_the_database_nothing_is_refused(dsn: str) -> None:
    """The batch is tried again: a payment in the dead topic would not be paid."""
    pool = await open_pool(dsn, min_size=1, max_size=1)
    pool.terminate()

    with pytest.raises(DatabaseAway):
        await accept(pool, message())


@pytest.mark.covers("A5")
async def test_a_process_schedules_the_payments_of_a_topic(
    dsn: str, db: Pool, *, stream: Stream, tmp_path: Path
) -> None:
    stream.put(message("p-1"), b"nonsense", message("p-2"), message("p-3", executeAt="now"))
    with penstock(*CONSUME, folder=tmp_path, environment=environment(dsn, stream)) as consume:
        consume.wait_for(f"takes payments from {re.escape(stream.topic)}")
        await stream.until_committed(4)

        assert consume.stop() == 0

    assert await scheduled(db) == ["p-1", "p-2"]
    dead = {each.value(): dict(each.headers() or []) for each in stream.read(stream.dead_topic, 2)}
    assert dead.keys() == {b"nonsense", message("p-3", executeAt="now")}
    reasons = [str(each) for each in dead.values()]
    assert sum("unknown field `executeAt`" in each for each in reasons) == 1
    statuses = await db.fetch("SELECT DISTINCT queue_status FROM penstock.payment_exec_queue")
    assert [row[0] for row in statuses] == ["READY"]


async def test_a_process_uses_the_steps_of_an_app(
    dsn: str, db: Pool, *, stream: Stream, tmp_path: Path
) -> None:
    """A rule that holds over REST alone is bypassed by whoever writes into the topic."""
    blocked = {"name": "Eve", "iban": BLOCKED_IBAN}
    stream.put(message("p-1", creditor=blocked), message("p-2"))
    arguments = (*CONSUME, "--app", write_ours(tmp_path))
    with penstock(*arguments, folder=tmp_path, environment=environment(dsn, stream)) as consume:
        consume.wait_for(f"takes payments from {re.escape(stream.topic)}")
        await stream.until_committed(2)

        assert consume.stop() == 0

    assert await scheduled(db) == ["p-2"]
    (dead,) = stream.read(stream.dead_topic, 1)
    assert msgspec.json.decode(dead.value() or b"")["payment_id"] == "p-1"
