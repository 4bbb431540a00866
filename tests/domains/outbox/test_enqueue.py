"""Instructions come in once, with numbers that have no gap, from every driver and over REST."""

import asyncio
import json
import random
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

import asyncpg
import psycopg
import pytest
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine

from penstock.base.errors import InvalidInput
from penstock.domains.outbox.control.gap import check_numbers, list_gaps
from penstock.domains.outbox.enqueue import AcceptedInstruction, Outbox
from penstock.domains.outbox.errors import InstructionConflict
from penstock.domains.outbox.rails.registry import RailRow, put_rail
from penstock.kernel.errors import LaneIsOwned
from penstock.kernel.item import Dead, Done, Retry
from penstock.kernel.operate import retry
from penstock.postgres.pool import connect
from tests.domains.outbox.scene import Scene, a_body, a_payload, an_instruction, body_of
from tests.fault.waiting import is_blocked, until

PRODUCERS = 16
JSON = {"Content-Type": "application/json"}
SEND = "SELECT * FROM penstock.send_instruction($1, $2, $3, $4, $5::jsonb)"
INSERT = """
    INSERT INTO penstock.payment_outbox_pending
        (sequence_id, instruction_id, participant_id, idempotency_key, rail_type, payload)
    VALUES ($1, $2, $3, $4, $5, $6::jsonb)
"""
UUID_V7 = 7


async def count(scene: Scene) -> int:
    return await scene.app.pool.fetchval("SELECT count(*) FROM penstock.payment_outbox_pending")


# ------------------------------------------------------------------------------------------ REST


@pytest.mark.covers("E17", "E76")
async def test_an_instruction_is_accepted_with_its_id_and_number(scene: Scene) -> None:
    answer = await scene.post()

    accepted = body_of(answer, 201)
    assert UUID(accepted["outbox_id"]).version == UUID_V7
    assert accepted["sequence_id"] == 1
    assert "Idempotency-Hit" not in answer.headers
    (row,) = await scene.pending()
    assert str(row["outbox_id"]) == accepted["outbox_id"]


@pytest.mark.covers("E21", "E62", "E68")
async def test_a_repeated_instruction_is_the_one_that_exists(scene: Scene) -> None:
    """Also after it was dispatched: a repeat must not pay again."""
    first = body_of(await scene.post(), 201)
    waiting = await scene.post()
    await scene.run()

    dispatched = await scene.post()

    for repeated in (waiting, dispatched):
        assert body_of(repeated, 200) == first
        assert repeated.headers["Idempotency-Hit"] == "true"
    assert await scene.run() == []
    assert await scene.numbers() == [("ada", 1, 1, 1, 2)]


@pytest.mark.covers("E71", "E72")
@pytest.mark.parametrize(
    "other",
    [
        {"payload": a_payload("12.51")},
        {"participant_id": "ben"},
        {"rail_type": "other"},
    ],
    ids=["amount", "participant", "rail"],
)
async def test_another_payload_is_a_conflict_with_both_hashes(
    scene: Scene, other: dict[str, Any]
) -> None:
    """The document returns the first record silently, and its bumped number is a gap."""
    first = body_of(await scene.post(), 201)

    refused = await scene.post(**other)

    problem = body_of(refused, 409)
    assert problem["type"].endswith("instruction-conflict")
    assert problem["outbox_id"] == first["outbox_id"]
    assert len(problem["stored_hash"]) == len(problem["given_hash"]) == 64
    assert problem["stored_hash"] != problem["given_hash"]
    assert body_of(await scene.post("i-2"), 201)["sequence_id"] == 2
    assert await scene.numbers() == [("ada", 2, 1, 2, 3)]


async def test_an_instruction_under_another_key_is_refused_while_it_may_be_paid(
    scene: Scene,
) -> None:
    """Two keys would pay twice: the rail does not know that they are one instruction."""
    first = await scene.send()
    waiting = await scene.post(idempotency_key="k-2")
    await scene.run()

    dispatched = await scene.post(idempotency_key="k-2")

    for refused in (waiting, dispatched):
        problem = body_of(refused, 409)
        assert (problem["stored_key"], problem["outbox_id"]) == ("k-1", str(first))
    assert await scene.numbers() == [("ada", 1, 1, 1, 2)]


@pytest.mark.parametrize("ended", ["FAILED", "RETURNED"])
async def test_an_instruction_that_was_not_paid_may_be_sent_under_another_key(
    scene: Scene, ended: str
) -> None:
    first = await scene.send()
    scene.outcomes = [Dead("refused")] if ended == "FAILED" else [Done()]
    await scene.run()
    if ended == "RETURNED":
        await scene.add_event(first, "RETURNED")

    second = body_of(await scene.post(idempotency_key="k-2"), 201)
    third = await scene.post(idempotency_key="k-3")

    assert await scene.state(first) == ended
    assert second["sequence_id"] == 2
    assert body_of(third, 409)["stored_key"] == "k-2"
    assert body_of(await scene.post(), 200)["outbox_id"] == str(first)


async def test_a_failed_instruction_that_is_tried_again_may_be_paid(scene: Scene) -> None:
    first = await scene.send()
    scene.outcomes = [Dead("refused")]
    await scene.run()
    item_id = await scene.app.pool.fetchval(
        "SELECT item_id FROM penstock.outbox_instruction WHERE outbox_id = $1", first
    )
    async with scene.app.pool.acquire() as db:
        await retry(db, item_id, who="test", owner="outbox")

    refused = await scene.post(idempotency_key="k-2")

    assert refused.status_code == 409
    assert await scene.state(first) == "PENDING"


async def test_a_retry_and_another_key_at_the_same_time_do_not_both_happen(scene: Scene) -> None:
    """Both look at the failed instruction, and each of the two would pay."""
    first = await scene.send()
    scene.outcomes = [Dead("refused")]
    await scene.run()
    pool = scene.app.pool
    item_id = await pool.fetchval(
        "SELECT item_id FROM penstock.outbox_instruction WHERE outbox_id = $1", first
    )
    again = [an_instruction(idempotency_key="k-2")]
    async with asyncio.timeout(30), pool.acquire() as operator, pool.acquire() as producer:
        process_id = await producer.fetchval("SELECT pg_backend_pid()")
        async with asyncio.TaskGroup() as group, operator.transaction():
            await operator.execute(
                "SELECT FROM penstock.outbox_idempotency WHERE instruction_id = 'i-1' FOR UPDATE"
            )
            asked = group.create_task(scene.outbox.send_many(again, connection=producer))
            while not await pool.fetchval(
                "SELECT cardinality(pg_blocking_pids($1)) > 0", process_id
            ):
                pass
            await retry(operator, item_id, who="test", owner="outbox")

    (answer,) = asked.result()
    assert isinstance(answer, InstructionConflict)
    assert await scene.numbers() == [("ada", 1, 1, 1, 2)]


async def test_of_two_keys_at_the_same_time_one_wins(scene: Scene) -> None:
    answers = await asyncio.gather(
        *(scene.outbox.send_many([an_instruction(idempotency_key=f"k-{n}")]) for n in range(8))
    )

    accepted = [each for (each,) in answers if isinstance(each, AcceptedInstruction)]
    assert len(accepted) == 1
    assert await scene.numbers() == [("ada", 1, 1, 1, 2)]


async def test_a_batch_has_an_outcome_for_each_line(scene: Scene) -> None:
    await scene.send("known")
    lines: list[object] = [
        a_body("new"),
        a_body("known"),
        a_body("known", payload=a_payload("1.00")),
        a_body("bad", payload=a_payload("-1")),
        {"instruction_id": "short"},
        a_body("new"),
        a_body("new", idempotency_key="other"),
        a_body("last", participant_id="ben"),
    ]

    results = body_of(await scene.client.post("/outbox/instructions/batch", json=lines))

    assert [each["index"] for each in results] == list(range(len(lines)))
    outcomes = [each["outcome"] for each in results]
    assert outcomes == [
        "accepted", "existing", "conflict", "invalid", "invalid", "existing", "conflict", "accepted"
    ]  # fmt: skip
    assert [results[n]["sequence_id"] for n in (0, 1, 5, 7)] == [2, 1, 2, 1]
    assert results[2]["stored_hash"] != results[2]["given_hash"]
    assert await scene.numbers() == [("ada", 2, 1, 2, 3), ("ben", 1, 1, 1, 2)]


@pytest.mark.parametrize(
    "note",
    [[1e300] * 250, [1] * 25_000, "ü" * 33_000, "x" * 66_000],
    ids=["exponents", "spaces", "characters of two bytes", "text"],
)
async def test_a_payload_that_the_database_would_refuse_is_invalid(
    scene: Scene, note: object
) -> None:
    """The database counts the bytes of what it writes, which is longer than the JSON it got."""
    large = a_body("large", payload=a_payload() | {"note": note})

    single = await scene.client.post("/outbox/instructions", json=large)
    batch = await scene.client.post("/outbox/instructions/batch", json=[large, a_body("small")])

    assert body_of(single, 400)["field"] == "payload"
    assert [each["outcome"] for each in body_of(batch)] == ["invalid", "accepted"]


@pytest.mark.parametrize(
    "note",
    ["3e99" * 16_000, [1e21] * 2_000, [1.5] * 10_000],
    ids=["text like a number", "exponents", "numbers"],
)
async def test_a_large_payload_that_the_database_takes_is_accepted(
    scene: Scene, note: object
) -> None:
    large = a_body("large", payload=a_payload() | {"note": note})

    answer = await scene.client.post("/outbox/instructions", json=large)

    assert answer.status_code == 201, answer.text


SEPA = RailRow(
    rail_type="sepa", adapter="simulator", code_set="simulator", destination_scheme="sepa",
    config={"url": "http://127.0.0.1:1"},
)  # fmt: skip


async def test_a_destination_that_cannot_be_right_is_refused_when_it_comes_in(
    scene: Scene,
) -> None:
    """It failed before its call, and blocked its participant, long after the producer was gone."""
    async with scene.app.pool.acquire() as db:
        await put_rail(db, SEPA, vault=scene.app.resources.vault, who="test")
    wrong = a_payload(destination={"iban": "DE89370400440532013001"})
    right = a_payload(destination={"iban": "DE89370400440532013000"})
    bodies = [a_body("i-1", rail_type="sepa", payload=each) for each in (wrong, right)]

    single = await scene.client.post("/outbox/instructions", json=bodies[0])
    batch = await scene.client.post("/outbox/instructions/batch", json=bodies)
    with pytest.raises(InvalidInput) as refused:
        await scene.outbox.send(an_instruction("i-1", rail_type="sepa", payload=wrong))

    assert body_of(single, 400)["field"] == "payload.destination.iban"
    first, second = body_of(batch)
    assert (first["outcome"], second["outcome"]) == ("invalid", "accepted")
    assert first["detail"].startswith("payload.destination.iban: ")
    assert refused.value.field == "payload.destination.iban"


async def test_a_destination_is_checked_on_a_blocking_connection_too(
    dsn: str, scene: Scene
) -> None:
    async with scene.app.pool.acquire() as db:
        await put_rail(db, SEPA, vault=scene.app.resources.vault, who="test")
    wrong = a_payload(destination={"iban": "DE89370400440532013001"})
    engine = create_engine(dsn.replace("postgresql://", "postgresql+psycopg://"))

    for opened in (psycopg.connect(dsn), engine.connect()):
        with opened as connection, pytest.raises(InvalidInput) as refused:
            scene.outbox.send_blocking(
                an_instruction("i-1", rail_type="sepa", payload=wrong), connection=connection
            )
        assert refused.value.field == "payload.destination.iban"
    engine.dispose()


async def test_a_destination_is_checked_where_the_rail_cannot_be_used(scene: Scene) -> None:
    """Only workers may have its adapter, and the producer is at the API."""
    async with scene.app.pool.acquire() as db:
        rail = replace(SEPA, adapter="of-the-workers")
        await put_rail(db, rail, vault=scene.app.resources.vault, who="test")
    wrong = a_payload(destination={"iban": "DE89370400440532013001"})

    answer = await scene.client.post(
        "/outbox/instructions", json=a_body("i-1", rail_type="sepa", payload=wrong)
    )

    assert body_of(answer, 400)["field"] == "payload.destination.iban"


async def test_an_amount_that_is_given_twice_is_refused(scene: Scene) -> None:
    """The last one would be paid, and whoever has checked the first one would not know."""
    twice = json.dumps(a_body("i-1")).replace('"amount":', '"amount": "9000.00", "amount":')

    single = await scene.client.post("/outbox/instructions", content=twice, headers=JSON)
    batch = await scene.client.post(
        "/outbox/instructions/batch",
        content=f"[{twice}, {json.dumps(a_body('i-2'))}]",
        headers=JSON,
    )

    assert body_of(single, 400)["field"] == "amount"
    first, second = body_of(batch)
    assert (first["outcome"], second["outcome"]) == ("invalid", "accepted")
    assert first["detail"].startswith("amount: ")
    assert await count(scene) == 1


@pytest.mark.parametrize("lines", [[], [{}] * 1_001, {"a": 1}], ids=["none", "many", "object"])
async def test_a_batch_of_another_shape_is_refused(scene: Scene, lines: object) -> None:
    refused = await scene.client.post("/outbox/instructions/batch", json=lines)

    assert refused.status_code == 400


@pytest.mark.covers("E32", "E79")
@pytest.mark.parametrize(
    ("field", "other"),
    [
        ("payload.amount", {"payload": a_payload(amount=12.5)}),  # pyright: ignore[reportArgumentType]
        ("payload.amount", {"payload": a_payload("0.00")}),
        ("payload.amount", {"payload": a_payload("-1.00")}),
        ("payload.amount", {"payload": a_payload("NaN")}),
        ("payload.currency", {"payload": a_payload(currency="eur")}),
        ("payload.destination", {"payload": a_payload(destination=None)}),
        ("rail_type", {"rail_type": "No Rail"}),
        ("instruction_id", {"instruction_id": "a\x00b"}),
    ],
)
async def test_what_cannot_be_paid_is_refused_with_the_field(
    scene: Scene, field: str, other: dict[str, Any]
) -> None:
    refused = await scene.post(**other)

    assert body_of(refused, 400)["field"] == field
    assert await count(scene) == 0


async def test_instructions_are_listed_by_filter_and_by_page(scene: Scene) -> None:
    sent = [await scene.send(f"i-{n}", participant_id="ada" if n % 2 else "ben") for n in range(6)]
    await scene.send("other", rail_type="other", participant_id="cy")
    scene.outcomes = [Dead("refused")]
    await scene.run()

    async def listed(**query: Any) -> list[str]:
        found: list[str] = []
        after: dict[str, str] = {}
        while True:
            page = body_of(
                await scene.client.get("/outbox/instructions", params=query | after | {"limit": 2})
            )
            found += [each["instruction_id"] for each in page["instructions"]]
            if page["next"] is None:
                return found
            after = {"after": page["next"]}

    assert await listed() == ["other", "i-5", "i-4", "i-3", "i-2", "i-1", "i-0"]
    assert await listed(participant_id="ada") == ["i-5", "i-3", "i-1"]
    assert await listed(rail_type="other") == ["other"]
    assert await listed(instruction_id="i-4") == ["i-4"]
    assert await listed(instruction_id="i-4", participant_id="ada") == []
    assert await listed(state="FAILED") == ["i-0"]
    assert await listed(state="PENDING") == ["i-4", "i-2"]
    assert await listed(until="2020-01-01T00:00:00Z") == []
    assert await scene.state(sent[0]) == "FAILED"


@pytest.mark.parametrize("state", ["RETRYABLE", "ZOMBIE_REQUEUE"])
async def test_a_state_that_only_an_attempt_has_is_refused_as_a_filter(
    scene: Scene, state: str
) -> None:
    """An empty page would say that no instruction waits for its next attempt."""
    scene.outcomes.append(Retry("busy"))
    outbox_id = await scene.send()
    await scene.run()

    refused = await scene.client.get("/outbox/instructions", params={"state": state})

    assert refused.status_code == 400
    assert "RETRYABLE" in await scene.states(outbox_id)
    assert await scene.state(outbox_id) == "PENDING"


async def test_an_unknown_instruction_is_not_found(scene: Scene) -> None:
    missing = await scene.client.get(f"/outbox/instructions/{UUID(int=1)}")
    malformed = await scene.client.get("/outbox/instructions/1")

    assert body_of(missing, 404)["type"].endswith("unknown-instruction")
    assert malformed.status_code == 400


# -------------------------------------------------------------------------------- the sequence


@pytest.mark.covers("E2", "E3", "E18", "E61", "E72")
async def test_numbers_have_no_gap_under_producers_that_conflict_and_roll_back(
    scene: Scene, dsn: str
) -> None:
    """Sixteen producers, four participants; a third of the transactions is rolled back."""
    chance = random.Random(7)
    plans = [
        [(chance.randrange(4), chance.randrange(40), chance.random() < 1 / 3) for _ in range(12)]
        for _ in range(PRODUCERS)
    ]

    async def produce(number: int, plan: list[tuple[int, int, bool]]) -> None:
        db = await connect(dsn)
        for participant, instruction, is_undone in plan:
            transaction = db.transaction()
            await transaction.start()
            # Ids collide between producers and their payloads differ: many conflicts.
            await scene.outbox.send_many(
                [
                    an_instruction(
                        f"i-{instruction}",
                        participant_id=f"p-{participant}",
                        payload=a_payload(f"{1 + number}.00"),
                    )
                ],
                connection=db,
            )
            await (transaction.rollback() if is_undone else transaction.commit())
        await db.close()

    await asyncio.gather(*(produce(*each) for each in enumerate(plans)))

    numbers = await scene.numbers()
    assert len(numbers) == 4
    assert all(
        first == 1 and last == found and following == found + 1
        for _, found, first, last, following in numbers
    )
    keys = await scene.app.pool.fetchval("SELECT count(*) FROM penstock.outbox_idempotency")
    assert sum(found for _, found, *_ in numbers) == keys > 0


async def test_batches_with_the_same_participants_in_other_orders_do_not_deadlock(
    scene: Scene,
) -> None:
    """PostgreSQL would abort one of them after a second of waiting."""
    participants = [f"p-{number}" for number in range(50)]

    async def produce(producer: int) -> None:
        order = random.Random(producer).sample(participants, len(participants))
        for batch in range(5):
            await scene.outbox.send_many(
                [
                    an_instruction(f"{producer}-{batch}-{each}", participant_id=each)
                    for each in order
                ]
            )

    await asyncio.gather(*(produce(producer) for producer in range(8)))

    assert [found for _, found, *_ in await scene.numbers()] == [40] * 50


@pytest.mark.covers("E5")
async def test_a_producer_with_a_bump_and_one_without_do_not_deadlock(
    scene: Scene, dsn: str
) -> None:
    """Both send the same instruction: one holds the participant, the other had taken the key."""
    arguments = ("i-1", "ada", "k-1", "sepa", json.dumps(a_payload()))
    bumping, sending = await connect(dsn), await connect(dsn)
    transaction = bumping.transaction()
    await transaction.start()
    number = await bumping.fetchval("SELECT penstock.bump_participant_outbox_seq('ada')")

    async with asyncio.TaskGroup() as group:
        sent = group.create_task(sending.fetchrow(SEND, *arguments))
        await until(partial(is_blocked, scene.app.pool), within=20)
        await bumping.execute(INSERT, number, *arguments)
        await transaction.commit()

    answer = sent.result()
    assert answer is not None
    assert (answer["sequence_id"], answer["is_new"]) == (1, False)
    assert await scene.numbers() == [("ada", 1, 1, 1, 2)]
    assert await list_gaps(scene.app.pool) == []
    for each in (bumping, sending):
        await each.close()


async def test_a_number_that_was_taken_and_not_used_is_a_gap(scene: Scene, dsn: str) -> None:
    """The numbers of a participant have a hole, and nobody has decided so."""
    db = await connect(dsn)
    await db.execute("SELECT penstock.bump_participant_outbox_seq('ada')")
    await scene.post()

    (gap,) = await list_gaps(db)
    other = await list_gaps(db, participant_id="bob")
    await db.close()

    assert (gap.participant_id, gap.sequence_id) == ("ada", 1)
    assert (gap.outbox_id, gap.instruction_id) == (None, None)
    assert gap.who.startswith("sql:")
    assert other == []
    assert [row["sequence_id"] for row in await scene.pending()] == [2]


async def test_a_number_that_a_producer_takes_by_itself_is_used_and_not_listed(
    scene: Scene, dsn: str
) -> None:
    """The document's own UPDATE works; nothing can note a number that it takes in vain."""
    await scene.send("i-0")
    db = await connect(dsn)
    take = (
        "UPDATE penstock.participant_outbox_sequences SET next_sequence_id = next_sequence_id + 1"
        " WHERE participant_id = 'ada' RETURNING next_sequence_id - 1"
    )

    async with db.transaction():
        number = await db.fetchval(take)
        await db.execute(INSERT, number, "i-1", "ada", "k-1", "sepa", json.dumps(a_payload()))
    await db.fetchval(take)
    await scene.send("i-2")

    assert [row["sequence_id"] for row in await scene.pending()] == [1, 2, 4]
    assert await list_gaps(db) == []
    await db.close()


@pytest.mark.parametrize("participant_id", ["", "a" * 256, None], ids=["empty", "long", "null"])
async def test_no_number_is_taken_for_an_id_that_no_instruction_can_have(
    dsn: str, participant_id: str | None
) -> None:
    """The gap would stay for ever."""
    db = await connect(dsn)

    with pytest.raises(asyncpg.InvalidParameterValueError, match="1 to 255 characters"):
        await db.fetchval("SELECT penstock.bump_participant_outbox_seq($1)", participant_id)

    assert await db.fetchval("SELECT count(*) FROM penstock.participant_outbox_sequences") == 0
    await db.close()


async def test_doctor_names_numbers_that_were_taken_and_not_used(scene: Scene) -> None:
    """A hole stays for ever; after a week it is no news any more."""
    pool, resources = scene.app.pool, scene.app.resources
    await scene.post()
    before = await check_numbers(resources)
    await pool.execute("SELECT penstock.bump_participant_outbox_seq('ada')")
    fresh = await check_numbers(resources)
    await pool.execute("UPDATE penstock.outbox_taken_number SET at = at - interval '8 days'")

    old = await check_numbers(resources)

    assert (before.verdict, fresh.verdict, old.verdict) == ("ok", "warn", "ok")
    assert fresh.detail.startswith("1 were taken with bump_participant_outbox_seq and not used")
    assert "the last one is ada 2" in fresh.detail
    assert old.detail == fresh.detail


async def test_items_have_the_order_of_the_numbers(scene: Scene) -> None:
    """Also within one batch, and over batches that were sent at the same time."""
    batches = [
        [an_instruction(f"{b}-{n}", participant_id=f"p-{n % 3}") for n in range(30)]
        for b in range(4)
    ]
    await asyncio.gather(*map(scene.outbox.send_many, batches))

    inverted = await scene.app.pool.fetchval(
        "SELECT count(*) FROM penstock.outbox_instruction AS a"
        " JOIN penstock.outbox_instruction AS b USING (participant_id)"
        " WHERE a.sequence_id < b.sequence_id AND a.item_id > b.item_id"
    )

    assert inverted == 0
    assert await scene.app.pool.fetchval("SELECT count(*) FROM penstock.outbox_instruction") == 120


@pytest.mark.covers("E2", "E61")
async def test_the_allocator_starts_at_one_and_rises_by_one(dsn: str) -> None:
    """By the name of the document, without a schema."""
    db = await connect(dsn)
    query = "SELECT bump_participant_outbox_seq($1)"

    numbers = [await db.fetchval(query, name) for name in ("a", "a", "b", "a")]

    assert numbers == [1, 2, 1, 3]
    await db.close()


@pytest.mark.covers("E14", "E17")
async def test_a_commit_notifies_and_a_rollback_does_not(scene: Scene, dsn: str) -> None:
    heard: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
    listener = await asyncpg.connect(dsn)
    for channel in ("outbox_pending", "done"):
        await listener.add_listener(channel, lambda _c, _p, *said: heard.put_nowait(said))
    async with scene.app.pool.acquire() as db:
        rolled_back = db.transaction()
        await rolled_back.start()
        await scene.outbox.send(an_instruction("undone"), connection=db)
        await rolled_back.rollback()
        await scene.outbox.send(an_instruction(), connection=db)
        await scene.outbox.send(an_instruction(), connection=db)
        await db.execute("SELECT pg_notify('done', '')")

    assert await heard.get() == ("outbox_pending", "new_work")
    assert await heard.get() == ("done", "")
    await listener.close()


# --------------------------------------------------------------------------------- the drivers


async def test_an_instruction_is_part_of_a_transaction_of_asyncpg(scene: Scene) -> None:
    async with scene.app.pool.acquire() as db:
        rolled_back = db.transaction()
        await rolled_back.start()
        await scene.outbox.send(an_instruction(), connection=db)
        await rolled_back.rollback()
        assert await count(scene) == 0

        async with db.transaction():
            accepted = await scene.outbox.send(an_instruction(), connection=db)

    assert (accepted.sequence_id, accepted.is_new) == (1, True)
    assert await count(scene) == 1


async def test_an_instruction_is_part_of_a_transaction_of_psycopg(dsn: str, scene: Scene) -> None:
    outbox = scene.app.api(Outbox)
    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        await outbox.send(an_instruction(), connection=connection)
        await connection.rollback()
        assert await count(scene) == 0

        first = await outbox.send(an_instruction(), connection=connection)
        await connection.commit()
    with psycopg.connect(dsn) as blocking:
        again = outbox.send_blocking(an_instruction(), connection=blocking)
        with pytest.raises(InstructionConflict):
            outbox.send_blocking(an_instruction(rail_type="other"), connection=blocking)

    assert not again.is_new
    assert (again.outbox_id, again.sequence_id) == (first.outbox_id, 1)
    assert await count(scene) == 1


async def test_an_instruction_is_part_of_a_transaction_of_sqlalchemy(
    dsn: str, scene: Scene
) -> None:
    address = dsn.replace("postgresql://", "postgresql+psycopg://")
    engine = create_async_engine(address)
    async with engine.connect() as connection:
        await scene.outbox.send(an_instruction(), connection=connection)
        await connection.rollback()
        assert await count(scene) == 0

        await scene.outbox.send(an_instruction(), connection=connection)
        await connection.commit()
    await engine.dispose()
    blocking = create_engine(address)
    with blocking.begin() as connection:
        scene.outbox.send_blocking(an_instruction("i-2"), connection=connection)
    blocking.dispose()

    assert await count(scene) == 2


async def test_a_conflict_in_a_batch_is_the_answer_of_its_own(scene: Scene) -> None:
    await scene.send()

    answers = await scene.outbox.send_many(
        [an_instruction(rail_type="other"), an_instruction("i-2")]
    )

    conflict, accepted = answers
    assert isinstance(conflict, InstructionConflict)
    assert isinstance(accepted, AcceptedInstruction)
    assert accepted.sequence_id == 2
    assert await scene.outbox.send_many([]) == []


# ------------------------------------------------------------------------------------------ SQL


async def test_sql_raises_a_conflict_with_both_hashes(scene: Scene) -> None:
    query = "SELECT * FROM penstock.send_instruction('i-1', $1, 'k-1', 'simulator', $2)"
    payload = '{"amount_minor": 1250, "currency": "EUR", "destination": {}}'

    first = await scene.app.pool.fetchrow(query, "ada", payload)
    again = await scene.app.pool.fetchrow(query, "ada", payload)
    with pytest.raises(asyncpg.PostgresError) as refused:
        await scene.app.pool.fetchrow(query, "ben", payload)

    assert first is not None
    assert again is not None
    assert first["outbox_id"] == again["outbox_id"]
    assert (first["is_new"], again["is_new"]) == (True, False)
    raised = vars(refused.value)
    assert raised["sqlstate"] == "PS409"
    assert {"stored_hash", "given_hash"} <= json.loads(raised["detail"]).keys()
    amount = await scene.app.pool.fetchval("SELECT amount::text FROM penstock.outbox_instruction")
    assert amount == "12.50"


@pytest.mark.covers("E32", "E79")
@pytest.mark.parametrize(
    "payload",
    [
        '{"amount": 12.5, "currency": "EUR", "destination": {}}',
        '{"amount": 12, "currency": "EUR", "destination": {}}',
        '{"amount": "12.505", "currency": "EUR", "destination": {}}',
        '{"amount": "12.5", "currency": "JPY", "destination": {}}',
        '{"amount": "0", "currency": "EUR", "destination": {}}',
        '{"amount": "-1", "currency": "EUR", "destination": {}}',
        '{"amount": "1", "amount_minor": 1, "currency": "EUR", "destination": {}}',
        '{"amount_minor": 12.0, "currency": "EUR", "destination": {}}',
        '{"amount": "1", "currency": "Eur", "destination": {}}',
        '{"amount": "1", "destination": {}}',
        '{"amount": "1", "currency": "EUR"}',
        "[]",
    ],
)
async def test_sql_refuses_what_is_not_exact(scene: Scene, payload: str) -> None:
    with pytest.raises(asyncpg.InvalidParameterValueError, match="payload"):
        await scene.app.pool.fetchrow(
            "SELECT * FROM penstock.send_instruction('i', 'p', 'k', 'simulator', $1)", payload
        )


@pytest.mark.parametrize("currency", ["EU", "EURO", "E1R", "EÜR", ""])
async def test_sql_refuses_what_is_not_a_code_of_a_currency(scene: Scene, currency: str) -> None:
    payload = json.dumps({"amount": "1", "currency": currency, "destination": {}})

    with pytest.raises(asyncpg.InvalidParameterValueError, match=r"payload\.currency"):
        await scene.app.pool.fetchrow(SEND, "i", "p", "k", "simulator", payload)


@pytest.mark.parametrize("rail_type", ["", "Sepa", "se pa", ".sepa", "-sepa", "_sepa", "s" * 64])
async def test_sql_refuses_a_rail_type_that_is_not_a_slug(scene: Scene, rail_type: str) -> None:
    with pytest.raises(asyncpg.CheckViolationError, match="rail_type_is_a_slug"):
        await scene.app.pool.fetchrow(SEND, "i", "p", "k", rail_type, json.dumps(a_payload()))


async def test_sql_accepts_every_character_of_a_slug(scene: Scene) -> None:
    rail_type = "abcdefghijklmnopqrstuvwxyz0123456789_.-"

    await scene.app.pool.fetchrow(SEND, "i", "p", "k", rail_type, json.dumps(a_payload()))

    (row,) = await scene.pending()
    assert row["rail_type"] == rail_type


async def test_only_the_outbox_enqueues_into_its_lane(scene: Scene) -> None:
    """An item without an instruction could not be sent, and would block its participant."""
    with pytest.raises(LaneIsOwned, match="/outbox/instructions"):
        await scene.app.enqueue("penstock.outbox", {"outbox_id": str(UUID(int=1))})


@pytest.mark.covers("E76")
async def test_ids_are_of_version_7_also_before_postgresql_18(scene: Scene) -> None:
    """The function for older versions orders ids by time, to the microsecond."""
    rows = await scene.app.pool.fetch(
        "SELECT penstock.uuid_v7_at('2026-11-17 12:00:00.5Z'::timestamptz"
        " + n * interval '1 microsecond') AS id FROM generate_series(0, 999) AS n"
    )
    ids = [UUID(str(row["id"])) for row in rows]

    assert {each.version for each in ids} == {UUID_V7}
    assert {each.variant for each in ids} == {"specified in RFC 4122"}
    assert {each.int >> 80 for each in ids} == {1_794_916_800_500}
    assert ids == sorted(ids, key=lambda each: each.int >> 64)
    assert len({each.int >> 64 for each in ids}) == len(ids)


def test_a_batch_is_bounded(scene: Scene) -> None:
    with pytest.raises(InvalidInput, match="5,000"):
        asyncio.run(scene.outbox.send_many([an_instruction()] * 5_001, connection=object()))


RESULT = """
    INSERT INTO penstock.outbox_result (outbox_id, status, occurred_at, received_at, due_at)
    VALUES ($1, $2, now(), now(), now())
"""


@pytest.mark.parametrize("status", ["paid", "settled"])
async def test_a_failed_instruction_with_a_report_that_it_was_paid_keeps_its_key(
    scene: Scene, status: str
) -> None:
    """The report is kept, and not applied yet: under another key it would be paid twice."""
    scene.outcomes = [Dead("refused")]
    outbox_id = await scene.send()
    await scene.run()
    await scene.app.pool.execute(RESULT, outbox_id, status)

    refused = await scene.post(idempotency_key="k-2")

    assert refused.status_code == 409, refused.text


async def test_a_payment_that_was_archived_before_the_failure_counts(scene: Scene) -> None:
    """The report's transaction began before the one that wrote FAILED, and ended after it."""
    scene.outcomes = [Dead("refused")]
    outbox_id = await scene.send()
    await scene.run()
    scene.clock.advance(-timedelta(minutes=1))
    await scene.add_event(outbox_id, "DISPATCHED")

    refused = await scene.post(idempotency_key="k-2")

    assert refused.status_code == 409, refused.text
