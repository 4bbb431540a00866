"""Mails in the caller's own transaction, with each driver, and what the SQL function takes."""

from datetime import datetime

import asyncpg
import psycopg
import pytest
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine

from penstock.base.errors import InvalidInput
from penstock.domains.mail.enqueue import Mailer
from penstock.domains.mail.new_mail import NewAttachment
from penstock.kernel.errors import KeyConflict, LaneIsOwned
from tests.domains.mail.outbox import ADA, BEN, Outbox, a_mail

FILE = NewAttachment(content=b"%PDF-1.7", filename="order.pdf", content_type="application/pdf")


async def count(outbox: Outbox) -> int:
    return await outbox.app.pool.fetchval("SELECT count(*) FROM penstock.mail_outbox")


async def test_a_mail_is_part_of_a_transaction_of_asyncpg(outbox: Outbox) -> None:
    mailer = outbox.app.api(Mailer)
    async with outbox.app.pool.acquire() as db:
        rolled_back = db.transaction()
        await rolled_back.start()
        await mailer.send(a_mail(attachments=[FILE]), connection=db)
        await rolled_back.rollback()
        assert await count(outbox) == 0

        async with db.transaction():
            await mailer.send(a_mail(attachments=[FILE]), connection=db)

    assert await count(outbox) == 1


async def test_a_mail_is_part_of_a_transaction_of_psycopg(dsn: str, outbox: Outbox) -> None:
    mailer = outbox.app.api(Mailer)
    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        await mailer.send(a_mail(key="a", attachments=[FILE]), connection=connection)
        await connection.rollback()
        assert await count(outbox) == 0

        await mailer.send(a_mail(key="a", attachments=[FILE]), connection=connection)
        await connection.commit()
    with psycopg.connect(dsn) as blocking:
        again = mailer.send_blocking(a_mail(key="a", attachments=[FILE]), connection=blocking)

    assert not again.is_new
    assert await count(outbox) == 1


async def test_a_mail_is_part_of_a_transaction_of_sqlalchemy(dsn: str, outbox: Outbox) -> None:
    mailer = outbox.app.api(Mailer)
    address = dsn.replace("postgresql://", "postgresql+psycopg://")
    engine = create_async_engine(address)
    async with engine.connect() as connection:
        await mailer.send(a_mail(attachments=[FILE]), connection=connection)
        await connection.rollback()
        assert await count(outbox) == 0

        await mailer.send(a_mail(attachments=[FILE]), connection=connection)
        await connection.commit()
    await engine.dispose()
    blocking = create_engine(address)
    with blocking.begin() as connection:
        mailer.send_blocking(a_mail(), connection=connection)
    blocking.dispose()

    assert await count(outbox) == 2


async def test_a_key_with_another_content_is_a_conflict(outbox: Outbox) -> None:
    await outbox.send(ADA, key="order-1")

    with pytest.raises(KeyConflict):
        await outbox.send(BEN, key="order-1")


async def test_an_instant_without_a_zone_is_refused_under_the_name_of_its_field(
    outbox: Outbox,
) -> None:
    """The kernel calls it `due_at`, a name that a caller of mail does not know."""
    for field in ("not_before", "not_after"):
        with pytest.raises(InvalidInput, match=f"^{field}: must have a time zone"):
            await outbox.send(ADA, **{field: datetime(2030, 1, 1)})  # noqa: DTZ001


async def test_one_content_is_stored_once(outbox: Outbox) -> None:
    await outbox.send(ADA, attachments=[FILE])
    await outbox.send(BEN, attachments=[FILE, FILE])

    assert await outbox.app.pool.fetchval("SELECT count(*) FROM penstock.mail_blob") == 1


async def test_an_address_that_is_named_twice_gets_one_copy(outbox: Outbox) -> None:
    mail_id = await outbox.send(ADA, cc=[ADA], bcc=[f"Ada <{ADA}>", BEN])

    row = await outbox.row(mail_id)
    assert row["recipients"] == [ADA, BEN]


async def test_a_bulk_mail_has_a_lane_of_its_own(outbox: Outbox) -> None:
    mail_id = await outbox.send(ADA, bulk=True)

    assert (await outbox.row(mail_id))["lane"] == "penstock.mail.bulk"


async def test_sql_accepts_a_mail_with_a_name_and_a_key(outbox: Outbox) -> None:
    query = "SELECT penstock.send_mail($1, $2, 'Hi', 'Hello', key => 'k', cc => '{c@example.org}')"
    given = ("Shop <shop@EXAMPLE.com>", ['"Ada" <ada@example.org>'])

    first = await outbox.app.pool.fetchval(query, *given)
    second = await outbox.app.pool.fetchval(query, *given)

    assert first == second
    row = await outbox.row(first)
    assert row["sender"] == "shop@example.com"
    assert row["recipients"] == ["ada@example.org", "c@example.org"]


@pytest.mark.parametrize(
    "arguments",
    ["'nobody', '{a@example.org}', 'Hi', 't'", "'a@example.org', '{}', 'Hi', 't'",
     "'a@example.org', '{a@example.org}', 'Hi'"],
    ids=["address", "recipients", "body"],
)  # fmt: skip
async def test_sql_refuses_what_could_never_be_sent(outbox: Outbox, arguments: str) -> None:
    with pytest.raises(asyncpg.PostgresError):
        await outbox.app.pool.fetchval(f"SELECT penstock.send_mail({arguments})")  # pyright: ignore[reportArgumentType]

    assert await count(outbox) == 0


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ("sender => 'nobody', recipients => '{a@b.org}'", "sender"),
        ("sender => NULL, recipients => '{a@b.org}'", "sender"),
        ("sender => 'a@b.org', recipients => '{a@b.org,nobody}'", "recipients[2]"),
        ("sender => 'a@b.org', recipients => '{a@b.org}', cc => '{nobody}'", "cc[1]"),
        ("sender => 'a@b.org', recipients => '{a@b.org}', reply_to => '{nobody}'", "reply_to[1]"),
    ],
)
async def test_sql_names_the_parameter_of_a_bad_address(
    outbox: Outbox, arguments: str, field: str
) -> None:
    query = f"SELECT penstock.send_mail({arguments}, subject => 'Hi', text => 't')"

    with pytest.raises(asyncpg.InvalidParameterValueError) as refused:
        await outbox.app.pool.fetchval(query)  # pyright: ignore[reportArgumentType]

    assert str(refused.value).startswith(f"{field}: ")
    assert await count(outbox) == 0


async def test_others_cannot_enqueue_in_the_lanes_of_mail(outbox: Outbox) -> None:
    with pytest.raises(LaneIsOwned, match="POST /mails"):
        await outbox.app.enqueue("penstock.mail", {"hash": "x"})


async def test_an_expired_mail_fails(outbox: Outbox) -> None:
    mail_id = await outbox.send(ADA, not_after=outbox.clock.now())

    await outbox.run_after(seconds=1)

    row = await outbox.row(mail_id)
    assert (row["status"], row["last_error"], row["retry_count"]) == ("failed", "expired", 0)


async def test_a_mail_without_content_is_refused(outbox: Outbox) -> None:
    with pytest.raises(InvalidInput) as refused:
        await outbox.send(ADA, text=None)

    assert refused.value.field == "text"
