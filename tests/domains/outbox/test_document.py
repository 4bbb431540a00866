"""The outbox document, from top to bottom: each sentence through its tables, now views."""

from typing import Any

import asyncpg
import pytest

from penstock.domains.outbox.lanes import LANE
from penstock.kernel.item import Dead, Done, Hold, Retry
from penstock.kernel.sweep import rescue
from penstock.postgres.pool import connect
from tests.api.scene import claim_all
from tests.domains.outbox.scene import Scene, a_payload

PAYLOAD = '{"amount": "12.50", "currency": "EUR", "destination": {"name": "Ada"}}'
INSERT = """
    INSERT INTO payment_outbox_pending
        (instruction_id, participant_id, sequence_id, idempotency_key, rail_type, payload)
    VALUES ($1, 'ada', bump_participant_outbox_seq('ada'), $2, 'simulator', $3)
    RETURNING outbox_id, sequence_id, attempt_count, next_attempt_at, created_at
"""


async def columns_of(scene: Scene, relation: str) -> list[tuple[str, str]]:
    rows = await scene.app.pool.fetch(
        "SELECT attname, format_type(atttypid, atttypmod) AS type FROM pg_attribute"
        " WHERE attrelid = to_regclass('penstock.' || $1) AND attnum > 0 ORDER BY attnum",
        relation,
    )
    return [(row["attname"], row["type"]) for row in rows]


# -------------------------------------------------------------------------------------- the schema


@pytest.mark.covers("E1", "E4", "E9")
async def test_the_tables_have_the_columns_of_the_document(scene: Scene) -> None:
    sequences = await columns_of(scene, "participant_outbox_sequences")
    pending = await columns_of(scene, "payment_outbox_pending")
    attempts = await columns_of(scene, "payment_outbox_attempts")

    instant = "timestamp with time zone"
    instruction = [
        ("outbox_id", "uuid"), ("instruction_id", "text"), ("participant_id", "text"),
        ("sequence_id", "bigint"), ("idempotency_key", "text"), ("rail_type", "text"),
        ("payload", "jsonb"),
    ]  # fmt: skip
    assert sequences == [("participant_id", "text"), ("next_sequence_id", "bigint")]
    assert pending == [
        *instruction, ("attempt_count", "integer"), ("next_attempt_at", instant),
        ("created_at", instant),
    ]  # fmt: skip
    assert attempts == [
        ("attempt_id", "uuid"), *instruction, ("attempt_no", "integer"), ("state", "text"),
        ("claimed_at", instant), ("completed_at", instant), ("rail_reference", "text"),
        ("rail_code", "text"), ("error_code", "text"), ("error_message", "text"),
        ("latency_ms", "integer"), ("created_at", instant),
    ]  # fmt: skip


@pytest.mark.covers("E5", "E6", "E11")
async def test_the_constraints_and_the_index_of_the_document_exist(scene: Scene) -> None:
    found = await scene.app.pool.fetch(
        "SELECT regexp_replace(indexdef, '^CREATE ', '') AS text FROM pg_indexes"
        " WHERE schemaname = 'penstock' AND tablename LIKE 'outbox%'"
    )

    texts = " ".join(row["text"] for row in found)
    assert "(participant_id, sequence_id)" in texts
    assert "(instruction_id, idempotency_key)" in texts
    assert "INDEX ix_attempts_by_outbox ON ONLY penstock.outbox_attempt" in texts
    assert "(outbox_id, claimed_at DESC)" in texts


# ------------------------------------------------------------------------------------ the producer


@pytest.mark.covers("E4", "E17", "E18")
async def test_the_insert_of_the_document_sends_an_instruction(scene: Scene, dsn: str) -> None:
    """In one transaction: bump, insert, commit. Defaults are those of the document."""
    db = await connect(dsn)
    async with db.transaction():
        first = await db.fetchrow(INSERT, "i-1", "k-1", PAYLOAD)
        second = await db.fetchrow(INSERT, "i-2", "k-1", PAYLOAD)
        begun_at = await db.fetchval("SELECT now()")
    plain = await db.fetchrow(
        "INSERT INTO payment_outbox_pending"
        " (instruction_id, participant_id, idempotency_key, rail_type, payload)"
        " VALUES ('i-3', 'ada', 'k-1', 'simulator', $1) RETURNING *",
        PAYLOAD,
    )
    await db.close()

    assert first is not None
    assert second is not None
    assert plain is not None
    assert [row["sequence_id"] for row in (first, second, plain)] == [1, 2, 3]
    assert first["attempt_count"] == 0
    assert first["next_attempt_at"] == first["created_at"] == begun_at
    rows = await scene.pending()
    assert [row["outbox_id"] for row in rows] == [
        first["outbox_id"], second["outbox_id"], plain["outbox_id"]
    ]  # fmt: skip
    assert len(await scene.run()) == 3


@pytest.mark.covers("E21", "E71", "E72")
async def test_a_repeated_insert_returns_the_stored_row_and_leaves_no_gap(
    scene: Scene, dsn: str
) -> None:
    """The document bumps before it inserts; the number of a repeat is given back."""
    db = await connect(dsn)
    first = await db.fetchrow(INSERT, "i-1", "k-1", PAYLOAD)

    again = await db.fetchrow(INSERT, "i-1", "k-1", PAYLOAD)
    with pytest.raises(asyncpg.PostgresError) as refused:
        await db.fetchrow(INSERT, "i-1", "k-1", PAYLOAD.replace("12.50", "12.51"))
    following = await db.fetchrow(INSERT, "i-2", "k-1", PAYLOAD)
    await db.close()

    assert first == again
    assert getattr(refused.value, "sqlstate", None) == "PS409"
    assert following is not None
    assert following["sequence_id"] == 2
    assert await scene.numbers() == [("ada", 2, 1, 2, 3)]


async def test_the_same_insert_again_gives_no_number_back(scene: Scene, dsn: str) -> None:
    """A producer that did not see its commit inserts the same row, with the number it has."""
    db = await connect(dsn)
    first = await db.fetchrow(INSERT, "i-1", "k-1", PAYLOAD)
    assert first is not None
    with_number = (
        "INSERT INTO payment_outbox_pending"
        " (instruction_id, participant_id, sequence_id, idempotency_key, rail_type, payload)"
        " VALUES ($1, 'ada', $2, 'k-1', 'simulator', $3) RETURNING *"
    )

    again = await db.fetchrow(with_number, "i-1", first["sequence_id"], PAYLOAD)
    with pytest.raises(asyncpg.InvalidParameterValueError, match="is not the last number"):
        await db.fetchrow(with_number, "i-2", first["sequence_id"], PAYLOAD)
    following = await db.fetchrow(INSERT, "i-2", "k-1", PAYLOAD)
    await db.close()

    assert again is not None
    assert {name: again[name] for name, _ in first.items()} == dict(first.items())
    assert following is not None
    assert following["sequence_id"] == 2
    assert await scene.numbers() == [("ada", 2, 1, 2, 3)]


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("sequence_id", "7"),
        ("attempt_count", "3"),
        ("created_at", "'2020-01-01Z'"),
        ("payload", """'{"amount": 1.5}'"""),
        ("instruction_id", "NULL"),
    ],
)
async def test_an_insert_that_cannot_be_right_is_refused(
    scene: Scene, column: str, value: str
) -> None:
    given = {
        "instruction_id": "'i-1'", "participant_id": "'ada'", "idempotency_key": "'k-1'",
        "rail_type": "'simulator'", "payload": f"'{PAYLOAD}'", column: value,
    }  # fmt: skip
    statement: Any = (
        f"INSERT INTO penstock.payment_outbox_pending ({', '.join(given)})"
        f" VALUES ({', '.join(given.values())})"
    )

    with pytest.raises(asyncpg.PostgresError, match=column):
        await scene.app.pool.execute(statement)

    assert await scene.pending() == []


@pytest.mark.covers("E26", "E69")
async def test_the_claim_of_the_document_fails_with_a_pointer(scene: Scene) -> None:
    """A claim by DELETE would ignore the order and the lease; its syntax is not PostgreSQL's.

    A relayer that locks rows and deletes them later must fail before it has paid.
    """
    await scene.send()

    with pytest.raises(asyncpg.PostgresSyntaxError):
        await scene.app.pool.fetch(
            "DELETE FROM penstock.payment_outbox_pending WHERE next_attempt_at <= NOW()"
            " ORDER BY next_attempt_at, created_at LIMIT 10 RETURNING *"
        )
    for claim in (
        "SELECT * FROM penstock.payment_outbox_pending FOR UPDATE SKIP LOCKED",
        "DELETE FROM penstock.payment_outbox_pending RETURNING *",
        "UPDATE penstock.payment_outbox_pending SET attempt_count = 1",
    ):
        with pytest.raises(asyncpg.PostgresError, match="penstock_worker_dispatches"):
            await scene.app.pool.execute(claim)

    assert len(await scene.pending()) == 1


# -------------------------------------------------------------------------------------- the states


@pytest.mark.covers("E16", "E26", "E28", "E29", "E63")
async def test_a_claim_moves_an_instruction_from_pending_to_dispatching(scene: Scene) -> None:
    outbox_id = await scene.send()

    lease = await claim_all(scene.app, LANE)

    assert await scene.pending() == []
    (row,) = await scene.attempts(outbox_id)
    assert (row["state"], row["attempt_no"]) == ("DISPATCHING", 1)
    assert row["claimed_at"] == lease.claimed_at
    assert (row["completed_at"], row["instruction_id"]) == (None, "i-1")
    assert await scene.state(outbox_id) == "DISPATCHING"


@pytest.mark.covers("E39", "E64")
async def test_a_success_adds_a_dispatched_row(scene: Scene) -> None:
    outbox_id = await scene.send()
    ids: list[Any] = []

    async def look() -> None:
        ids.extend(row["attempt_id"] for row in await scene.attempts(outbox_id))

    scene.seen = look
    await scene.run()

    begun, ended = await scene.attempts(outbox_id)
    assert (begun["state"], ended["state"]) == ("DISPATCHING", "DISPATCHED")
    assert [begun["attempt_id"]] == ids, "the row of the claim stays the same"
    assert begun["attempt_id"] != ended["attempt_id"]
    assert (begun["attempt_no"], ended["attempt_no"]) == (1, 1)
    assert await scene.pending() == []
    assert await scene.state(outbox_id) == "DISPATCHED"


@pytest.mark.covers("E19", "E20", "E40", "E65")
async def test_a_retry_waits_with_the_same_id_and_number(scene: Scene) -> None:
    await scene.set_lane(backoff_jitter=0.0)
    outbox_id = await scene.send()
    scene.outcomes = [Retry("busy")]

    await scene.run()

    (row,) = await scene.pending()
    assert (row["outbox_id"], row["sequence_id"], row["attempt_count"]) == (outbox_id, 1, 1)
    assert row["next_attempt_at"] > scene.clock.now()
    assert await scene.states(outbox_id) == ["DISPATCHING", "RETRYABLE"]
    assert await scene.state(outbox_id) == "PENDING"
    await scene.run_after(hours=1)
    assert await scene.states(outbox_id) == [
        "DISPATCHING", "RETRYABLE", "DISPATCHING", "DISPATCHED"
    ]  # fmt: skip
    assert await scene.numbers() == [("ada", 1, 1, 1, 2)]


@pytest.mark.covers("E41")
async def test_a_failure_is_terminal_and_blocks_the_participant(scene: Scene) -> None:
    """The next instruction must not overtake it; another participant is not slowed."""
    failed = await scene.send()
    follower = await scene.send("i-2")
    other = await scene.send("i-3", participant_id="ben")
    scene.outcomes = [Dead("account closed")]

    await scene.run()

    assert await scene.states(failed) == ["DISPATCHING", "FAILED"]
    assert await scene.state(failed) == "FAILED"
    assert await scene.state(follower) == "PENDING"
    assert await scene.state(other) == "DISPATCHED"
    assert await scene.run_after(days=1) == []


@pytest.mark.covers("E70")
async def test_a_follower_waits_until_the_head_has_ended(scene: Scene) -> None:
    """While number 1 backs off, number 2 stays where it is."""
    first = await scene.send()
    second = await scene.send("i-2")
    scene.outcomes = [Retry("busy")]

    await scene.run()
    waiting = await scene.states(second)
    await scene.run_after(hours=1)

    assert waiting == []
    assert await scene.state(first) == await scene.state(second) == "DISPATCHED"


async def test_an_unknown_result_is_shown_as_unknown(scene: Scene) -> None:
    outbox_id = await scene.send()
    scene.outcomes = [Hold("no answer")]

    await scene.run()

    assert await scene.states(outbox_id) == ["DISPATCHING", "UNKNOWN"]
    assert await scene.state(outbox_id) == "UNKNOWN"
    assert await scene.pending() == []


@pytest.mark.covers("E28")
async def test_what_a_dead_worker_held_stays_visible(scene: Scene) -> None:
    """From the claim to the decision there is no moment in which no row shows it."""
    outbox_id = await scene.send()
    lease = await claim_all(scene.app, LANE)
    in_flight = await scene.attempts(outbox_id)
    await scene.app.pool.execute(
        "UPDATE penstock.lease SET started_ids = item_ids WHERE token = $1", lease.token
    )

    async with scene.app.pool.acquire() as db:
        await rescue(db, now=scene.clock.now())

    assert await scene.attempts(outbox_id) == in_flight
    assert await scene.state(outbox_id) == "UNKNOWN"


@pytest.mark.parametrize("later", ["SETTLED", "RETURNED"])
async def test_what_the_rail_says_later_is_another_row(scene: Scene, later: str) -> None:
    outbox_id = await scene.send()
    await scene.run()

    await scene.add_event(outbox_id, later)

    assert await scene.states(outbox_id) == ["DISPATCHING", "DISPATCHED", later]
    assert await scene.state(outbox_id) == later


@pytest.mark.covers("E10")
async def test_no_other_state_can_be_archived(scene: Scene) -> None:
    outbox_id = await scene.send()

    with pytest.raises(asyncpg.CheckViolationError, match="state_is_known"):
        await scene.add_event(outbox_id, "PAID")


async def test_the_story_of_an_instruction_has_its_item_and_its_attempts(scene: Scene) -> None:
    outbox_id = await scene.send(payload=a_payload("7.00", reference="rent"))
    scene.outcomes = [Dead("account closed")]
    await scene.run()

    story = (await scene.client.get(f"/outbox/instructions/{outbox_id}")).json()

    assert story["payload"]["reference"] == "rent"
    assert (story["instruction"]["amount"], story["instruction"]["currency"]) == ("7.00", "EUR")
    assert story["instruction"]["last_error"] == "account closed"
    assert (story["item"]["state"], story["item"]["reason"]) == ("dead", "account closed")
    assert [each["state"] for each in story["attempts"]] == ["DISPATCHING", "FAILED"]


# --------------------------------------------------------------------------------- the append-only


@pytest.mark.covers("E9")
@pytest.mark.parametrize(
    "write",
    [
        "UPDATE penstock.outbox_attempt SET state = 'FAILED'",
        "DELETE FROM penstock.outbox_attempt",
        "TRUNCATE penstock.outbox_attempt",
        "TRUNCATE penstock.outbox_attempt_kept",
        "DELETE FROM penstock.outbox_attempt_kept",
        "UPDATE penstock.outbox_instruction SET amount = 90000",
        "DELETE FROM penstock.outbox_instruction",
        "TRUNCATE penstock.outbox_instruction",
        "UPDATE penstock.outbox_idempotency SET payload_hash = '\\x00'",
        "DELETE FROM penstock.outbox_idempotency",
        "TRUNCATE penstock.outbox_idempotency",
        "TRUNCATE penstock.outbox_seal",
    ],
)
async def test_the_archive_is_append_only_for_its_owner_too(scene: Scene, write: Any) -> None:
    """An archive that can be edited proves nothing."""
    outbox_id = await scene.send()
    scene.outcomes = [Done()]
    await scene.run()

    with pytest.raises(asyncpg.InsufficientPrivilegeError, match="append-only"):
        await scene.app.pool.execute(write)

    assert await scene.states(outbox_id) == ["DISPATCHING", "DISPATCHED"]


@pytest.mark.covers("E9")
@pytest.mark.parametrize(
    "write",
    [
        "UPDATE penstock.payment_outbox_attempts SET state = 'FAILED'",
        "DELETE FROM penstock.payment_outbox_attempts",
        "INSERT INTO penstock.payment_outbox_attempts (state) VALUES ('FAILED')",
    ],
)
async def test_the_view_of_attempts_is_read_only(scene: Scene, write: Any) -> None:
    await scene.send()
    await scene.run()

    with pytest.raises(asyncpg.FeatureNotSupportedError, match="append-only"):
        await scene.app.pool.execute(write)
