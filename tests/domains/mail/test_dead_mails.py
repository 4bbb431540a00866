"""Mails that end without a handler: each recipient gets a result and an event, exactly once."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from penstock.base.log import get_logger
from penstock.base.meter import Meter
from penstock.domains.mail.dead_mails import DeadMails
from penstock.domains.mail.event import MailEvent
from penstock.domains.mail.lanes import LANE
from penstock.domains.mail.operate import replay_mail
from penstock.postgres.pool import Connection
from tests.api.scene import claim_all
from tests.domains.mail.outbox import ADA, BEN, Outbox
from tests.fault.waiting import is_blocked, until
from tests.smtp_server import SmtpServer

PATIENCE = 30.0


@dataclass(slots=True, kw_only=True)
class Announced:
    """What looks for dead mails, and the events that were committed with their results."""

    outbox: Outbox
    events: list[MailEvent] = field(default_factory=list[MailEvent])

    async def look(self) -> list[tuple[str | None, str | None]]:
        """Look from the beginning; return recipient and reason of each new event."""
        self.events.clear()
        await self.dead_mails.fail(LANE, now=self.outbox.clock.now())
        assert {each.type for each in self.events} <= {"mail.failed"}
        return [(each.recipient, each.reason) for each in self.events]

    @property
    def dead_mails(self) -> DeadMails:
        return DeadMails(
            pool=self.outbox.app.pool, announce=self._note, log=get_logger(), meter=Meter()
        )

    async def _note(self, _db: Connection, events: Sequence[MailEvent]) -> None:
        self.events += events


@pytest.fixture
def announced(outbox: Outbox) -> Announced:
    return Announced(outbox=outbox)


async def test_an_expired_mail_fails_for_each_recipient_once(announced: Announced) -> None:
    outbox = announced.outbox
    soon = outbox.clock.now() + timedelta(hours=1)
    mail_id = await outbox.send(ADA, BEN, not_before=soon, not_after=soon, tags=["order"])
    before = await announced.look()
    await outbox.run_after(hours=2)

    first = await announced.look()
    assert announced.events[0].mail_id == mail_id
    assert list(announced.events[0].tags) == ["order"]
    again = await announced.look()

    assert before == again == []
    assert first == [(ADA, "expired"), (BEN, "expired")]
    assert await outbox.results(mail_id) == ["failed", "failed"]


async def test_a_mail_whose_workers_died_fails(announced: Announced) -> None:
    outbox = announced.outbox
    await outbox.set_lane(max_attempts=1)
    await outbox.send(ADA)
    await claim_all(outbox.app, LANE)
    await outbox.run_after(minutes=1)

    assert await announced.look() == [(ADA, "lost")]


async def test_a_recipient_with_a_result_gets_no_second_one(
    announced: Announced, relay: SmtpServer
) -> None:
    """Ada got the mail before it expired for Ben."""
    outbox = announced.outbox
    relay.on("RCPT", "450 4.2.1 busy", argument=BEN)
    until_at = outbox.clock.now() + timedelta(seconds=10)
    mail_id = await outbox.send(ADA, BEN, not_after=until_at)
    await outbox.run()
    await outbox.run_after(hours=1)

    assert await announced.look() == [(BEN, "expired")]
    assert await outbox.results(mail_id) == ["sent", "failed"]


async def test_a_mail_that_cannot_be_built_fails_with_its_reason(announced: Announced) -> None:
    outbox = announced.outbox
    await outbox.app.pool.fetchval(
        "SELECT penstock.send_mail('a@example.com', '{b@example.org}', E'Hi\\nBcc: x@y.org', 't')"
    )
    await outbox.run()

    assert await announced.look() == [("b@example.org", "unsendable")]
    reply = await outbox.app.pool.fetchval("SELECT reply FROM penstock.mail_result")
    assert reply.startswith("subject: ")


async def test_a_replayed_mail_can_fail_again(announced: Announced) -> None:
    outbox = announced.outbox
    await outbox.set_lane(max_attempts=1)
    mail_id = await outbox.send(ADA)
    await claim_all(outbox.app, LANE)
    await outbox.run_after(minutes=1)
    first = await announced.look()

    async with outbox.app.pool.acquire() as db:
        await replay_mail(db, mail_id, who="test")
    in_between = await announced.look()
    await claim_all(outbox.app, LANE)
    await outbox.run_after(minutes=1)
    second = await announced.look()

    assert (first, in_between, second) == ([(ADA, "lost")], [], [(ADA, "lost")])


async def test_a_replay_beside_it_still_sends(announced: Announced, relay: SmtpServer) -> None:
    """The replay waits for results that are about to be written, and removes them."""
    outbox = announced.outbox
    await outbox.set_lane(max_attempts=1)
    mail_id = await outbox.send(ADA)
    await claim_all(outbox.app, LANE)
    await outbox.run_after(minutes=1)
    can_go_on = asyncio.Event()

    async def announce_slowly(_db: Connection, _events: object) -> None:
        await can_go_on.wait()

    async def replay() -> None:
        async with outbox.app.pool.acquire() as db:
            await replay_mail(db, mail_id, who="test")

    async def is_locked() -> bool:
        return await outbox.app.pool.fetchval(
            "SELECT count(*) = 0 FROM ("
            "SELECT FROM penstock.dead WHERE id = $1 FOR UPDATE SKIP LOCKED) AS free",
            mail_id,
        )

    async def replay_waits() -> bool:
        return await is_blocked(outbox.app.pool)

    slow = DeadMails(
        pool=outbox.app.pool, announce=announce_slowly, log=get_logger(), meter=Meter()
    )
    async with asyncio.TaskGroup() as group:
        group.create_task(slow.fail(LANE))
        await until(is_locked, within=PATIENCE)
        group.create_task(replay())
        await until(replay_waits, within=PATIENCE)
        can_go_on.set()
    await outbox.run()

    assert await outbox.results(mail_id) == ["sent"]
    assert len(relay.messages) == 1
