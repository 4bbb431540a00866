"""One id is one item: an item of another type, or with another context, is a conflict."""

import json
from typing import Any, LiteralString

import asyncpg
import pytest

from penstock.domains.payments.persist import look_up
from penstock.domains.payments.steps import STEPS
from penstock.kernel.errors import KeyConflict
from tests.domains.payments.scene import AT_FOUR, Scene, a_body, a_payment

INVOICE: LiteralString = "INSERT INTO penstock.exec_rate_config (item_type) VALUES ('INVOICE')"
SAVE: LiteralString = """
SELECT * FROM penstock.save_context_and_enqueue(
    $1, ARRAY[$2], ARRAY[$3::jsonb], ARRAY[$4::integer], ARRAY[$5::timestamptz])
"""
COUNTS: LiteralString = """
SELECT (SELECT count(*) FROM penstock.payment),
    (SELECT count(*) FROM penstock.payment_exec_context),
    (SELECT count(*) FROM penstock.item), (SELECT count(*) FROM penstock.idempotency)
"""


async def save(
    scene: Scene, item_type: str, payment_id: str, *, context: str = "{}", version: int = 1
) -> Any:
    return await scene.app.pool.fetchrow(SAVE, item_type, payment_id, context, version, AT_FOUR)


async def counts(scene: Scene) -> tuple[int, ...]:
    """Return how many payments, contexts, items and keys are stored."""
    row = await scene.app.pool.fetchrow(COUNTS)
    assert row is not None
    return tuple(row.values())


@pytest.mark.covers("A95")
async def test_a_payment_with_the_id_of_another_item_type_is_a_conflict(scene: Scene) -> None:
    """It would be executed with the other one's context, or never, after a 202."""
    await scene.app.pool.execute(INVOICE)
    invoice = await save(scene, "INVOICE", "2030-7", context='{"customer": "acme"}')
    before = await counts(scene)

    answer = await scene.post("2030-7")

    assert answer.status_code == 409
    assert answer.headers["content-type"] == "application/problem+json"
    told = answer.json()
    assert (told["type"], told["key"]) == ("urn:penstock:problem:key-conflict", "2030-7")
    assert (told["field"], told["item_id"]) == ("item_type", invoice["item_id"])
    assert "'2030-7'" in told["detail"]
    assert "stored INVOICE, given PAYMENT" in told["detail"]
    assert await counts(scene) == before


async def test_the_other_payments_of_a_batch_are_scheduled(scene: Scene) -> None:
    await scene.app.pool.execute(INVOICE)
    await save(scene, "INVOICE", "2030-7")

    answer = await scene.client.post(
        "/payments/batch", json=[a_body(each) for each in ("p-1", "2030-7", "p-2")]
    )

    results = answer.json()
    assert [each["outcome"] for each in results] == ["scheduled", "conflict", "scheduled"]
    assert results[1]["code"] == "key-conflict"
    assert [row["payment_id"] for row in await scene.rows()] == ["p-1", "p-2"]


@pytest.mark.covers("A95")
async def test_an_item_with_the_id_of_a_payment_is_a_conflict(scene: Scene) -> None:
    """The caller would believe that its item is enqueued, and the payment would be executed."""
    await scene.app.pool.execute(INVOICE)
    await scene.post("2030-7")
    before = await counts(scene)

    with pytest.raises(asyncpg.PostgresError) as refused:
        await save(scene, "INVOICE", "2030-7", context='{"customer": "acme"}')

    error: Any = refused.value
    assert error.sqlstate == "PS409"
    assert error.message == (
        "item '2030-7' exists with another item type: stored PAYMENT, given INVOICE"
    )
    assert json.loads(error.detail)["key"] == "2030-7"
    assert await counts(scene) == before


async def test_an_item_with_the_id_of_a_payment_that_is_not_enqueued_is_a_conflict(
    scene: Scene,
) -> None:
    """A workflow may have persisted the payment and crashed: the item would become its item."""
    await scene.app.pool.execute(INVOICE)
    draft = STEPS.enrich(STEPS.validate(a_payment("2030-7")))
    async with scene.app.pool.acquire() as db:
        await STEPS.persist(db, [draft], (await look_up(db, [draft], None)).at)

    with pytest.raises(asyncpg.PostgresError, match="stored PAYMENT, given INVOICE"):
        await save(scene, "INVOICE", "2030-7")

    assert (await scene.rows())[0]["item_id"] is None
    assert (await scene.post("2030-7")).status_code in {200, 202}


@pytest.mark.covers("A38", "A99")
async def test_an_equal_repeat_changes_nothing(scene: Scene) -> None:
    await scene.app.pool.execute(INVOICE)

    first = await save(scene, "INVOICE", "i-1", context='{"a": 1, "b": 2}')
    again = await save(scene, "INVOICE", "i-1", context='{"b": 2, "a": 1.0}')

    assert (first["is_new"], again["is_new"]) == (True, False)
    assert (again["item_id"], again["scheduled_at"]) == (first["item_id"], AT_FOUR)
    assert await counts(scene) == (0, 1, 1, 1)


@pytest.mark.covers("A95")
@pytest.mark.parametrize(("context", "version"), [('{"a": 2}', 1), ('{"a": 1}', 2)])
async def test_a_known_id_with_another_context_is_a_conflict(
    scene: Scene, *, context: str, version: int
) -> None:
    """Returning the stored item would hide that another amount was asked for."""
    await scene.app.pool.execute(INVOICE)
    await save(scene, "INVOICE", "i-1", context='{"a": 1}')

    with pytest.raises(asyncpg.PostgresError) as refused:
        await save(scene, "INVOICE", "i-1", context=context, version=version)

    error: Any = refused.value
    assert (error.sqlstate, error.message) == ("PS409", "item 'i-1' exists with another context")
    assert await scene.contexts() == {"i-1": {"a": 1}}


async def test_two_contexts_for_one_id_in_one_call_are_a_conflict(scene: Scene) -> None:
    with pytest.raises(asyncpg.PostgresError, match="'i-1' exists with another context"):
        await scene.app.pool.execute(
            "SELECT penstock.save_context_and_enqueue('PAYMENT', ARRAY['i-1', 'i-1'],"
            """ ARRAY['{"a": 1}', '{"a": 2}']::jsonb[], ARRAY[1, 1], ARRAY[now(), now()])"""
        )

    assert await counts(scene) == (0, 0, 0, 0)


async def test_a_payment_whose_context_was_saved_otherwise_is_a_conflict(scene: Scene) -> None:
    """The payment would be executed with an amount that nobody has asked for."""
    await save(scene, "PAYMENT", "p-1", context='{"amount": "1000000"}')

    with pytest.raises(KeyConflict) as refused:
        await scene.payments.schedule(a_payment("p-1"))

    assert refused.value.field == "context"
    assert await scene.rows() == []


@pytest.mark.covers("A38", "A95")
async def test_a_scheduled_payment_keeps_its_context(scene: Scene) -> None:
    """It is known by its content; a later release may build another context of the same one."""
    await scene.post("p-1")
    before = await scene.contexts()

    again = await save(scene, "PAYMENT", "p-1", context='{"v": 2}', version=2)

    assert not again["is_new"]
    assert await scene.contexts() == before
