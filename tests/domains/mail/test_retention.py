"""Mails leave with their items, by the retention of their lane; attachments leave after them."""

from datetime import timedelta
from typing import LiteralString, cast

import pytest

from penstock.domains.mail.new_mail import NewAttachment
from penstock.domains.mail.retain import BLOB_UNUSED_DAYS, BLOBS_MAX, remove_unused
from penstock.kernel.enqueue import enqueue_many
from penstock.kernel.item import NewItem
from penstock.kernel.lane import create_lane
from penstock.kernel.retain import open_days, retain, trim_day, trim_retained
from tests.domains.mail.outbox import ADA, BEN, Outbox, body_of
from tests.smtp_server import SmtpServer

MAILS = 12  # A day is dropped if at most a tenth of it must be kept, and otherwise trimmed.
LATER = timedelta(days=400)  # More than the lane keeps by default.
WEEK = timedelta(days=BLOB_UNUSED_DAYS)
PICTURE = NewAttachment(content=b"\x89PNG", filename="logo.png", content_type="image/png")

each_way = pytest.mark.parametrize("way", ["dropped", "trimmed"])


async def apply_retention(outbox: Outbox, way: str = "dropped") -> None:
    """Do what the sweeper does long after all mails have ended."""
    later = outbox.clock.now() + LATER
    async with outbox.app.pool.acquire() as db:
        if way == "trimmed":
            await create_lane(db, "other", who="test")
            await enqueue_many(db, "other", [NewItem(payload=n) for n in range(2 * MAILS)])
        await open_days(db, now=later)
        await retain(db, now=later)
        was_trimmed = await trim_day(db, now=later) is not None
        await trim_retained(db, now=later)
    assert was_trimmed == (way == "trimmed")


async def count(outbox: Outbox, table: str) -> int:
    return await outbox.app.pool.fetchval(
        cast("LiteralString", f"SELECT count(*) FROM penstock.{table}")
    )


@each_way
async def test_sent_mails_are_deleted_and_failed_ones_are_kept(
    outbox: Outbox, relay: SmtpServer, way: str
) -> None:
    """A failed mail may be replayed, however old it is."""
    relay.on("RCPT", "550 5.7.1 not today", argument=BEN)
    failed = await outbox.send(BEN)
    sent = [await outbox.send(ADA) for _ in range(MAILS)]
    await outbox.run()

    await apply_retention(outbox, way)

    assert (await outbox.client.get(f"/mails/{sent[0]}")).status_code == 404
    assert await count(outbox, "mail") == await count(outbox, "mail_result") == 1
    assert (await outbox.row(failed))["status"] == "failed"
    body_of(await outbox.client.post(f"/mails/{failed}/replay"))
    await outbox.run_after(days=400)
    assert (await outbox.row(failed))["status"] == "sent"
    assert relay.messages[-1].recipients == (BEN,)


@each_way
@pytest.mark.usefixtures("relay")
async def test_a_replayed_mail_is_deleted_when_its_own_retention_is_over(
    outbox: Outbox, way: str
) -> None:
    waiting = await outbox.send(BEN, not_before=outbox.clock.now() + LATER)
    for _ in range(MAILS):
        await outbox.send(ADA)
    await outbox.run()
    await apply_retention(outbox, way)
    assert [row["id"] for row in await outbox.app.pool.fetch("SELECT id FROM penstock.mail")] == [
        waiting
    ]

    await outbox.run_after(days=400)
    async with outbox.app.pool.acquire() as db:
        await trim_retained(db, now=outbox.clock.now() + LATER)

    assert await count(outbox, "mail") == await count(outbox, "mail_result") == 0


@pytest.mark.usefixtures("relay")
async def test_the_retention_of_the_lane_decides(outbox: Outbox) -> None:
    await outbox.set_lane(retention=timedelta(days=3650))
    for _ in range(MAILS):
        await outbox.send(ADA)
    await outbox.run()

    await apply_retention(outbox)

    assert await count(outbox, "mail") == await count(outbox, "mail_result") == MAILS


async def test_an_attachment_is_kept_while_a_mail_lists_it(outbox: Outbox) -> None:
    mails = [await outbox.send(ADA, attachments=[PICTURE]) for _ in range(MAILS)]
    await outbox.run()
    now = outbox.clock.now()

    while_used = await remove_unused(outbox.app.pool, now=now + LATER)
    shown = await outbox.client.get(f"/mails/{mails[0]}/preview")
    await apply_retention(outbox)
    too_early = await remove_unused(outbox.app.pool, now=now + LATER + WEEK)
    after = await remove_unused(outbox.app.pool, now=now + LATER + WEEK + timedelta(days=1))

    assert shown.status_code == 200
    assert (while_used, too_early, after) == (0, 0, 1)
    assert await count(outbox, "mail_blob") == 0


async def test_an_attachment_that_was_just_given_is_kept_for_its_mail(outbox: Outbox) -> None:
    """With SQL it is stored first, and listed by a mail in a later transaction."""
    await outbox.app.pool.fetchval(
        "SELECT penstock.put_mail_blob($1, $2)", b"a", outbox.clock.now()
    )

    removed = await remove_unused(outbox.app.pool, now=outbox.clock.now() + WEEK)
    await outbox.app.pool.fetchval(
        "SELECT penstock.put_mail_blob($1, $2)", b"a", outbox.clock.now() + WEEK
    )
    removed += await remove_unused(outbox.app.pool, now=outbox.clock.now() + 2 * WEEK)

    assert removed == 0


async def test_more_attachments_than_one_batch_are_deleted(outbox: Outbox) -> None:
    for number in range(BLOBS_MAX + 1):
        await outbox.app.pool.fetchval(
            "SELECT penstock.put_mail_blob($1, $2)", b"%d" % number, outbox.clock.now()
        )

    assert await remove_unused(outbox.app.pool, now=outbox.clock.now() + LATER) == BLOBS_MAX + 1


async def test_counts_of_limits_that_are_over_are_deleted(outbox: Outbox) -> None:
    """The limit of * is counted for each domain."""
    take = "SELECT penstock.take_mail_quota('domain', $1, 10, 10, $2)"
    await outbox.app.pool.fetchval(take, "old.example", outbox.clock.now())
    outbox.clock.advance(timedelta(days=3))
    await outbox.app.pool.fetchval(take, "new.example", outbox.clock.now())

    await remove_unused(outbox.app.pool, now=outbox.clock.now())

    rows = await outbox.app.pool.fetch("SELECT name FROM penstock.mail_quota")
    assert {row["name"] for row in rows} == {"new.example"}
