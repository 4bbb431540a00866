"""Phase A: a payment is checked, stored and enqueued in one transaction, once."""

import asyncio
from collections.abc import Sequence
from dataclasses import fields, replace
from datetime import UTC, datetime
from typing import Any

import asyncpg
import msgspec
import psycopg
import pytest
from sqlalchemy.ext.asyncio import create_async_engine

from penstock.base.errors import InvalidInput, PenstockError
from penstock.domains.payments.errors import PaymentConflict, UnknownItemType
from penstock.domains.payments.payment import Draft, Scheduled
from penstock.domains.payments.persist import look_up
from penstock.domains.payments.steps import STEPS, Steps
from penstock.kernel.enqueue import NewItem, enqueue
from penstock.kernel.errors import LaneIsOwned
from penstock.postgres.pool import connect
from tests.domains.payments.scene import (
    AT_FOUR,
    IBAN,
    OTHER_IBAN,
    Scene,
    a_payment,
    opened_payments,
)

PRODUCERS = 8

# ------------------------------------------------------------------------------------- one payment


@pytest.mark.covers("A6")
async def test_a_payment_is_stored_with_its_context_and_its_item(scene: Scene) -> None:
    """Then phase A is over: what waits is a row, and nothing sleeps."""
    answer = await scene.payments.schedule(a_payment())

    assert (answer.status, answer.scheduled_at, answer.is_new) == ("SCHEDULED", AT_FOUR, True)
    (row,) = await scene.rows()
    assert (row["status"], row["scheduled_at"], row["item_id"]) == (
        "SCHEDULED",
        AT_FOUR,
        answer.item_id,
    )
    assert str(row["amount"]) == "12.50"
    assert await scene.items() == [("p-1", {"payment_id": "p-1"})]
    context = (await scene.contexts())["p-1"]
    assert (context["amount"], context["currency"]) == ("12.50", "EUR")
    assert context["notify"] == {"mail": "ada@example.org", "event": True}


async def test_the_banks_of_both_parties_are_added(scene: Scene) -> None:
    await scene.payments.schedule(a_payment())

    context = (await scene.contexts())["p-1"]
    assert context["debtor"] == {
        "name": "Ada",
        "iban": IBAN,
        "country": "DE",
        "bank_code": "37040044",
        "bank_name": "Commerzbank",
        "bic": "COBADEFFXXX",
    }
    assert context["creditor"]["bank_name"] == "LA BANQUE POSTALE"
    assert context["creditor"]["bic"] == "PSSTFRPPXXX"


@pytest.mark.parametrize(
    ("iban", "bic"),
    [("GB85MIDL40527412345678", "MIDLJESHXXX"), (OTHER_IBAN, "BPFSRERRXXX")],
    ids=["Jersey", "Reunion"],
)
async def test_a_bank_of_a_territory_has_the_iban_of_its_country(
    scene: Scene, *, iban: str, bic: str
) -> None:
    await scene.payments.schedule(a_payment(creditor={"name": "Bo", "iban": iban, "bic": bic}))

    assert (await scene.contexts())["p-1"]["creditor"]["bic"] == bic


async def test_without_an_instant_a_payment_is_due_now(scene: Scene) -> None:
    now = datetime(2031, 5, 4, 3, 2, 1, tzinfo=UTC)

    answer = await scene.payments.schedule(a_payment(execute_at=None), at=now)

    assert answer.scheduled_at == now


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("payment_id", {"payment_id": ""}),
        ("payment_id", {"payment_id": "x" * 256}),
        ("payment_id", {"payment_id": "a\x00b"}),
        ("payment_id", {"payment_id": "a\r\nb"}),
        ("item_type", {"item_type": "payment"}),
        ("amount", {"amount": "0"}),
        ("amount", {"amount": "1.005"}),
        ("amount", {"amount": "1e3"}),
        ("currency", {"currency": "eur"}),
        ("debtor.name", {"debtor": {"name": " ", "iban": IBAN}}),
        ("debtor.name", {"debtor": {"name": "a\nb", "iban": IBAN}}),
        ("debtor.iban", {"debtor": {"name": "Ada", "iban": "DE89370400440532013001"}}),
        ("creditor.iban", {"creditor": {"name": "Ada", "iban": "DE89 3704 0044 0532 0130 00"}}),
        ("creditor.bic", {"creditor": {"name": "Ada", "iban": IBAN, "bic": "NOBANK"}}),
        ("creditor.bic", {"creditor": {"name": "Ada", "iban": IBAN, "bic": "PSSTFRPPXXX"}}),
        ("execute_at", {"execute_at": "2031-01-31T16:00:00"}),
        ("execute_at", {"execute_at": "2200-01-31T16:00:00Z"}),
        ("participant_id", {"participant_id": ""}),
        ("rail_type", {"rail_type": "SEPA"}),
        ("notify.mail", {"notify": {"mail": "ada"}}),
    ],
)
async def test_a_payment_that_cannot_be_right_is_refused_with_its_field(
    scene: Scene, *, field: str, change: dict[str, Any]
) -> None:
    with pytest.raises(InvalidInput) as refused:
        await scene.payments.schedule(a_payment(**change))

    assert refused.value.field == field
    assert await scene.rows() == []


async def test_an_item_type_without_a_lane_is_refused(scene: Scene) -> None:
    with pytest.raises(UnknownItemType):
        await scene.payments.schedule(a_payment(item_type="INVOICE"))

    assert await scene.rows() == []


async def test_the_lane_takes_items_from_the_domain_alone(scene: Scene) -> None:
    """An item without a payment could not be executed."""
    async with scene.app.pool.acquire() as db:
        with pytest.raises(LaneIsOwned, match="POST /payments"):
            await enqueue(db, "payment", NewItem(payload={"payment_id": "p-1"}, key="p-1"))


# ------------------------------------------------------------------------------------- repeats


@pytest.mark.covers("A95")
async def test_the_same_payment_again_gets_the_same_answer(scene: Scene) -> None:
    """Written otherwise, it is still the same amount and the same instant."""
    first = await scene.payments.schedule(a_payment())

    same = a_payment(amount="12.5", execute_at="2031-01-31T18:00:00+02:00")
    again = await scene.payments.schedule(same)

    assert again == msgspec.structs.replace(first, is_new=False)
    assert len(await scene.rows()) == len(await scene.items()) == 1


@pytest.mark.covers("A95")
@pytest.mark.parametrize(
    "change",
    [
        {"amount": "12.51"},
        {"execute_at": "2031-01-31T16:00:01Z"},
        {"execute_at": None},
        {"creditor": {"name": "Eve", "iban": IBAN}},
        {"notify": {"event": True}},
        {"participant_id": "eve"},
    ],
    ids=lambda change: next(iter(change)),
)
async def test_other_content_under_a_known_id_is_a_conflict(
    scene: Scene, change: dict[str, Any]
) -> None:
    await scene.payments.schedule(a_payment())
    (before,) = await scene.rows()

    with pytest.raises(PaymentConflict) as conflict:
        await scene.payments.schedule(a_payment(**change))

    assert conflict.value.stored_hash == before["content_hash"] != conflict.value.given_hash
    assert await scene.rows() == [before]


async def test_a_batch_answers_repeats_and_conflicts_within_it(scene: Scene) -> None:
    answers = await scene.payments.schedule_many(
        [a_payment(), a_payment(amount="1"), a_payment("p-2"), a_payment()]
    )

    first, conflict, second, again = answers
    assert isinstance(first, Scheduled)
    assert isinstance(conflict, PaymentConflict)
    assert isinstance(second, Scheduled)
    assert again == msgspec.structs.replace(first, is_new=False)
    assert [row["payment_id"] for row in await scene.rows()] == ["p-1", "p-2"]


async def test_of_concurrent_producers_one_schedules_each_payment(scene: Scene) -> None:
    """Half of them ask for another amount; who comes first decides, and all hear the same."""
    batches = [
        [a_payment(f"p-{n}", amount=f"{1 + (producer + n) % 2}") for n in range(20)]
        for producer in range(PRODUCERS)
    ]

    answered = await asyncio.gather(*(scene.payments.schedule_many(each) for each in batches))

    answers = [answer for each in answered for answer in each]
    assert sum(isinstance(each, Scheduled) and each.is_new for each in answers) == 20
    assert sum(isinstance(each, Scheduled) for each in answers) == 20 * PRODUCERS // 2
    assert sum(isinstance(each, PaymentConflict) for each in answers) == 20 * PRODUCERS // 2
    assert len(await scene.rows()) == len(await scene.items()) == 20


# ------------------------------------------------------------------------------- transactions


async def test_a_payment_is_part_of_the_transaction_of_an_asyncpg_caller(
    scene: Scene, dsn: str
) -> None:
    connection = await connect(dsn)
    transaction = connection.transaction()
    await transaction.start()
    await scene.payments.schedule(a_payment(), connection=connection)

    before = await scene.rows()
    await transaction.rollback()

    assert before == await scene.rows() == await scene.items() == []
    await connection.close()


async def test_a_payment_is_part_of_the_transaction_of_a_psycopg_caller(
    scene: Scene, dsn: str
) -> None:
    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        await scene.payments.schedule_many([a_payment(), a_payment("p-2")], connection=connection)
        before = await scene.rows()

    assert (len(before), len(await scene.rows()), len(await scene.items())) == (0, 2, 2)


async def test_a_payment_is_part_of_the_transaction_of_a_sqlalchemy_caller(
    scene: Scene, dsn: str
) -> None:
    engine = create_async_engine(dsn.replace("postgresql://", "postgresql+asyncpg://"))
    async with engine.begin() as connection:
        await scene.payments.schedule(a_payment(), connection=connection)
        before = await scene.rows()
    await engine.dispose()

    assert (len(before), len(await scene.rows())) == (0, 1)


# -------------------------------------------------------------------------------------- steps


def recording(called: list[str]) -> Steps:
    """Return the shipped steps; each notes its name when it is called."""

    def noted(name: str) -> Any:
        step: Any = getattr(STEPS, name)

        def call(*arguments: Any) -> Any:
            called.append(name)
            return step(*arguments)

        return call

    return Steps(**{field.name: noted(field.name) for field in fields(Steps)})


@pytest.mark.covers("A4")
async def test_the_steps_run_in_their_order(dsn: str) -> None:
    called: list[str] = []
    async with opened_payments(dsn, recording(called)) as scene:
        await scene.payments.schedule(a_payment())

    assert called == [
        "validate",
        "enrich",
        "apply_rules",
        "persist",
        "build_context",
        "determine_times",
        "save_and_enqueue",
    ]


async def test_a_user_replaces_a_step_by_composition(dsn: str) -> None:
    """Old and new versions of contexts stand side by side, each as it was saved."""

    def second_version(draft: Draft) -> Draft:
        context = {"v": 2, "id": draft.payment_id}
        return msgspec.structs.replace(draft, context=context, context_version=2)

    async with opened_payments(dsn) as scene:
        await scene.payments.schedule(a_payment("old"))
    async with opened_payments(dsn, replace(STEPS, build_context=second_version)) as scene:
        await scene.payments.schedule(a_payment("old"))
        await scene.payments.schedule(a_payment("new"))
        versions = await scene.app.pool.fetch(
            "SELECT payment_id, context_version FROM penstock.payment_exec_context ORDER BY 1"
        )
        contexts = await scene.contexts()

    assert [tuple(row) for row in versions] == [("new", 2), ("old", 1)]
    assert contexts["new"] == {"v": 2, "id": "new"}
    assert contexts["old"]["amount"] == "12.50"


async def test_a_rule_refuses_one_payment_and_not_the_others(dsn: str) -> None:
    class TooLate(PenstockError):
        pass

    async def rule(
        _connection: object, drafts: Sequence[Draft], _now: datetime
    ) -> Sequence[Draft | PenstockError]:
        return [TooLate() if each.payment_id == "p-2" else each for each in drafts]

    async with opened_payments(dsn, replace(STEPS, apply_rules=rule)) as scene:
        answers = await scene.payments.schedule_many(
            [a_payment("p-1"), a_payment("p-2"), a_payment("p-3")]
        )
        ids = [row["payment_id"] for row in await scene.rows()]

    assert isinstance(answers[1], TooLate)
    assert ids == ["p-1", "p-3"]


async def test_a_payment_that_was_persisted_and_not_enqueued_is_completed(dsn: str) -> None:
    """A workflow may crash between two steps that have transactions of their own."""
    draft = STEPS.enrich(STEPS.validate(a_payment()))
    async with opened_payments(dsn) as scene:
        async with scene.app.pool.acquire() as db:
            now = (await look_up(db, [draft], None)).at
            await STEPS.persist(db, [draft], now)
        listed = (await scene.client.get("/payments")).json()["payments"]
        answer = await scene.payments.schedule(a_payment())
        items = await scene.items()

    assert [(each["payment_id"], each["status"]) for each in listed] == [("p-1", "SCHEDULED")]
    assert (answer.scheduled_at, answer.is_new) == (AT_FOUR, False)
    assert [key for key, _ in items] == ["p-1"]


@pytest.mark.covers("A38")
async def test_a_repeated_save_and_enqueue_changes_nothing(scene: Scene) -> None:
    """The stored function is for any item type and any producer."""
    call = (
        "SELECT * FROM penstock.save_context_and_enqueue("
        "'PAYMENT', ARRAY['i-1'], ARRAY[$1::jsonb], ARRAY[1], ARRAY[$2::timestamptz])"
    )

    first = await scene.app.pool.fetchrow(call, '{"a": 1}', AT_FOUR)
    again = await scene.app.pool.fetchrow(call, '{"a": 1}', None)

    assert first is not None
    assert again is not None
    assert (first["item_id"], first["is_new"]) == (again["item_id"], True)
    assert (again["scheduled_at"], again["is_new"]) == (AT_FOUR, False)
    assert await scene.contexts() == {"i-1": {"a": 1}}


async def test_an_unknown_item_type_cannot_be_enqueued(scene: Scene) -> None:
    with pytest.raises(asyncpg.PostgresError, match="unknown item type 'INVOICE'"):
        await scene.app.pool.fetch(
            "SELECT penstock.save_context_and_enqueue("
            "'INVOICE', ARRAY['i-1'], ARRAY['{}'::jsonb], ARRAY[1], ARRAY[now()])"
        )
