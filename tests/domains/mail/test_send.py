"""One attempt against a relay that misbehaves: what each reply does to a mail."""

import ast
import asyncio
import re
from dataclasses import replace
from datetime import timedelta
from importlib.resources import files
from pathlib import Path
from typing import get_args

import pytest
from structlog.testing import capture_logs

from penstock.base.aio import spawn
from penstock.base.clock import FakeClock
from penstock.base.errors import InvalidInput
from penstock.base.log import LOGGABLE, LOGGABLE_ENDINGS, get_logger
from penstock.contract import Finding
from penstock.contract.announce import announce_nothing
from penstock.domains.mail.domain import check_relays
from penstock.domains.mail.results import MailEnding, ResultRow, ResultWriter
from penstock.domains.mail.send import Send
from penstock.kernel.item import Dead, Done, Hold, Retry, Snooze
from penstock.kernel.sweep import rescue
from penstock.limits.gate import RefusalReason
from tests.domains.mail.outbox import ADA, BEN, Outbox, body_of, opened_outbox
from tests.smtp_server import SmtpServer, Step, serving


async def test_a_mail_without_a_relay_is_captured(outbox: Outbox) -> None:
    """The first mail on a fresh machine must work, and go nowhere."""
    mail_id = await outbox.send(ADA)

    (ran,) = await outbox.run()

    assert isinstance(ran.outcome, Done)
    assert await outbox.results(mail_id) == ["captured"]
    assert (await outbox.row(mail_id))["status"] == "sent"


async def test_a_mail_leaves_once_with_its_message_id(outbox: Outbox, relay: SmtpServer) -> None:
    mail_id = await outbox.send(ADA, BEN, subject="Order 1")

    await outbox.run()

    (message,) = relay.messages
    assert message.sender == "shop@example.com"
    assert message.recipients == (ADA, BEN)
    assert f"Message-ID: <{mail_id}.".encode() in message.content
    assert await outbox.results(mail_id) == ["sent", "sent"]
    assert await outbox.run_after(hours=2) == []


async def test_one_bad_recipient_does_not_fail_the_rest(outbox: Outbox, relay: SmtpServer) -> None:
    """And nobody gets a second copy."""
    relay.on("RCPT", "550 5.1.1 no such user", argument=BEN)
    mail_id = await outbox.send(ADA, BEN)

    (ran,) = await outbox.run()

    assert isinstance(ran.outcome, Dead)
    assert await outbox.results(mail_id) == ["sent", "failed"]
    row = await outbox.row(mail_id)
    assert (row["status"], row["recipients_sent"], row["recipients_failed"]) == ("failed", 1, 1)
    assert len(relay.messages) == 1


async def test_an_address_that_does_not_exist_is_suppressed(
    outbox: Outbox, relay: SmtpServer
) -> None:
    relay.on("RCPT", "550 5.1.1 no such user", argument=BEN)
    first = await outbox.send(BEN)
    (refused,) = await outbox.run()
    second = await outbox.send(BEN.upper().replace("EXAMPLE.ORG", "example.org"), ADA)

    await outbox.run()

    assert isinstance(refused.outcome, Dead)
    assert (await outbox.row(first))["status"] == "failed"
    assert await outbox.results(second) == ["suppressed", "sent"]
    assert [each.recipients for each in relay.messages] == [(ADA,)]


async def test_a_transient_refusal_is_retried_for_that_recipient_alone(
    outbox: Outbox, relay: SmtpServer
) -> None:
    relay.on("RCPT", "450 4.2.1 busy", argument=BEN)
    mail_id = await outbox.send(ADA, BEN)

    (first,) = await outbox.run()
    (second,) = await outbox.run_after(minutes=2)

    assert isinstance(first.outcome, Retry)
    assert isinstance(second.outcome, Done)
    assert [each.recipients for each in relay.messages] == [(ADA,), (BEN,)]
    assert await outbox.results(mail_id) == ["sent", "sent"]


async def test_greylisting_has_a_schedule_of_its_own(outbox: Outbox, relay: SmtpServer) -> None:
    """The lane would come back after a minute, before the server accepts."""
    relay.on("RCPT", "450 4.2.0 greylisted, try again in 300 seconds")
    await outbox.send(ADA)

    (ran,) = await outbox.run()

    assert isinstance(ran.outcome, Retry)
    assert ran.outcome.after == timedelta(minutes=5)


async def test_throttling_costs_no_attempt_and_stops_all_mail_of_the_relay(
    outbox: Outbox, relay: SmtpServer
) -> None:
    relay.on("DOT", "454 4.7.0 Throttling failure: maximum send rate exceeded")
    first = await outbox.send(ADA)
    second = await outbox.send(BEN)

    ran = await outbox.run()

    assert [type(each.outcome) for each in ran] == [Snooze, Snooze]
    assert relay.steps["MAIL"] == 1
    assert (await outbox.row(first))["retry_count"] == 0
    assert (await outbox.row(second))["retry_count"] == 0


@pytest.mark.parametrize(
    "fault", [("BANNER", "554 no service"), ("MAIL", "530 5.7.0 authenticate first")]
)
async def test_a_fault_of_the_relay_costs_no_attempt(
    outbox: Outbox, relay: SmtpServer, fault: tuple[Step, str]
) -> None:
    relay.on(*fault)
    mail_id = await outbox.send(ADA)

    (first,) = await outbox.run()
    (second,) = await outbox.run_after(minutes=1)

    assert isinstance(first.outcome, Snooze)
    assert isinstance(second.outcome, Done)
    assert (await outbox.row(mail_id))["retry_count"] == 0


@pytest.mark.parametrize(
    "reply",
    ["454 4.7.0 throttling failure", "530 5.7.0 authenticate first"],
    ids=["throttled", "relay fault"],
)
async def test_a_wait_keeps_the_last_error_of_the_relay(
    outbox: Outbox, relay: SmtpServer, reply: str
) -> None:
    """A mail that waits for a cooldown or a breaker still shows what the relay has said."""
    relay.on("MAIL", reply, times=9)
    mail_id = await outbox.send(ADA)

    outcomes = [(await outbox.run_after(minutes=2))[0].outcome for _ in range(8)]

    assert all(isinstance(each, Snooze) for each in outcomes)
    assert {each.reason for each in outcomes if isinstance(each, Snooze)} > {reply}
    row = await outbox.row(mail_id)
    assert (row["status"], row["retry_count"], row["last_error"]) == ("queued", 0, reply)


async def test_a_wait_without_an_error_is_shown_as_such(outbox: Outbox, relay: SmtpServer) -> None:
    await outbox.limit("relay", "main", per_hour=1)
    sent = [await outbox.send(ADA), await outbox.send(BEN)]

    await outbox.run()

    assert [(await outbox.row(each))["last_error"] for each in sent] == [None, "rate_limited"]
    assert len(relay.messages) == 1


async def test_an_error_is_shown_before_the_limit_of_another_recipient(
    outbox: Outbox, relay: SmtpServer
) -> None:
    await outbox.limit("domain", "example.org", per_hour=1)
    await outbox.send(ADA)
    await outbox.run()
    relay.on("RCPT", "450 4.2.1 busy", argument="eve@example.net")
    mail_id = await outbox.send(ADA, "eve@example.net")

    await outbox.run()

    assert (await outbox.row(mail_id))["last_error"] == "450 4.2.1 busy"


def test_the_view_knows_every_wait() -> None:
    """Their words are in SQL, which cannot import them."""
    function = files("penstock.domains.mail").joinpath("functions/mail_progress.sql").read_text()

    assert [each for each in get_args(RefusalReason) if f"'{each}'" not in function] == []


def test_every_value_in_the_log_of_mail_can_be_read() -> None:
    """A key that the log does not know is printed as [redacted]."""
    folder = Path(str(files("penstock.domains.mail")))
    calls = [
        node
        for path in folder.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and re.search(r"\blog\.\w+$|_log\.\w+$", ast.unparse(node.func))
    ]
    keys = {each.arg for call in calls for each in call.keywords if each.arg is not None}

    unknown = {each for each in keys - LOGGABLE if not each.endswith(LOGGABLE_ENDINGS)}
    assert len(calls) > 3
    assert unknown == set()


@pytest.mark.parametrize(
    ("reply", "logged"), [("530 5.7.0 shop must log in", "530 5.7.0"), (None, "connect: ")]
)
async def test_a_failing_relay_is_logged_once_and_named_by_doctor(
    outbox: Outbox, reply: str | None, logged: str
) -> None:
    """Mails only wait: without this, nobody notices that none leaves."""
    with capture_logs() as lines:
        async with serving(SmtpServer()) as relay:
            await outbox.relay_to(relay)
            if reply is not None:
                relay.on("MAIL", reply, times=9)
                await outbox.send(ADA)
                await outbox.run()
        await outbox.send(BEN)
        await outbox.run()
        warned = await check_relays(outbox.app.resources)
        async with serving(SmtpServer()) as mended:
            await outbox.relay_to(mended)
            fresh = await check_relays(outbox.app.resources)
            await outbox.run_after(minutes=2)

    (failed,) = [each for each in lines if each["event"] == "mail_relay.failed"]
    assert (failed["name"], failed["reason"].startswith(logged)) == ("main", True)
    assert "shop" not in failed["reason"]
    assert (warned.verdict, warned.detail.startswith("main fails since ")) == ("warn", True)
    assert fresh == Finding("ok", "mail relays", "main")


async def test_a_relay_that_takes_mails_again_is_logged(outbox: Outbox, relay: SmtpServer) -> None:
    relay.on("MAIL", "530 5.7.0 authenticate first")
    await outbox.send(ADA)

    with capture_logs() as lines:
        await outbox.run()
        warned = await check_relays(outbox.app.resources)
        await outbox.run_after(minutes=2)

    changes = [each["event"] for each in lines if each["event"].startswith("mail_relay.")]
    assert changes == ["mail_relay.failed", "mail_relay.recovered"]
    assert "530 5.7.0 authenticate first" in warned.detail
    assert (await check_relays(outbox.app.resources)).verdict == "ok"


async def test_a_second_relay_takes_what_the_first_cannot(
    outbox: Outbox, relay: SmtpServer
) -> None:
    relay.on("BANNER", "554 no service")
    async with serving(SmtpServer()) as second:
        await outbox.relay_to(second, "second", priority=200)
        await outbox.send(ADA)

        (ran,) = await outbox.run()

        assert isinstance(ran.outcome, Done)
        assert len(second.messages) == 1


async def test_an_unknown_result_is_repeated_with_the_same_message_id_and_on_no_other_relay(
    outbox: Outbox, relay: SmtpServer
) -> None:
    """The relay may have the mail: another one would surely send a second copy."""
    relay.on("DOT", drop=True)
    async with serving(SmtpServer()) as second:
        await outbox.relay_to(second, "second", priority=200)
        await outbox.send(ADA)

        (first,) = await outbox.run()
        await outbox.run_after(minutes=2)

        assert isinstance(first.outcome, Retry)
        assert second.messages == []
        one, other = relay.messages
        assert one.content == other.content


async def test_an_unknown_result_is_held_by_setting(dsn: str, clock: FakeClock) -> None:
    """A mail that moves money must not go out twice: a person decides."""
    async with (
        serving(SmtpServer()) as relay,
        opened_outbox(dsn, clock, mail_on_unknown="hold") as outbox,
    ):
        await outbox.relay_to(relay)
        relay.on("DOT", drop=True)
        mail_id = await outbox.send(ADA)

        (ran,) = await outbox.run()

        assert isinstance(ran.outcome, Hold)
        row = await outbox.row(mail_id)
        assert row["status"] == "failed"
        assert row["last_error"].startswith("held: ")
        assert await outbox.run_after(days=1) == []
        lane = await outbox.app.pool.fetchrow(
            "SELECT on_lost FROM penstock.lane WHERE name = 'penstock.mail'"
        )
        assert lane is not None
        assert lane["on_lost"] == "hold"


async def test_staging_redirects_every_mail(dsn: str, clock: FakeClock) -> None:
    async with (
        serving(SmtpServer()) as relay,
        opened_outbox(dsn, clock, mail_redirect_to="team@example.com") as outbox,
    ):
        await outbox.relay_to(relay)
        mail_id = await outbox.send(ADA, BEN)

        await outbox.run()

        assert [each.recipients for each in relay.messages] == [("team@example.com",)]
        assert await outbox.results(mail_id) == ["sent", "sent"]


async def test_too_many_recipients_are_sent_in_two_transactions(
    outbox: Outbox, relay: SmtpServer
) -> None:
    relay.on("RCPT", "452 4.5.3 too many recipients", argument=BEN)
    mail_id = await outbox.send(ADA, BEN)

    (ran,) = await outbox.run()

    assert isinstance(ran.outcome, Done)
    assert [each.recipients for each in relay.messages] == [(ADA,), (BEN,)]
    assert await outbox.results(mail_id) == ["sent", "sent"]


async def test_a_message_that_is_too_large_fails_for_good(
    outbox: Outbox, relay: SmtpServer
) -> None:
    relay.size_max = 1_000
    mail_id = await outbox.send(ADA, text="x" * 5_000)

    (ran,) = await outbox.run()

    assert isinstance(ran.outcome, Dead)
    assert relay.messages == []
    assert await outbox.results(mail_id) == ["failed"]


JUERGEN = "jürgen@example.org"


async def test_without_smtputf8_only_the_address_that_needs_it_fails(
    outbox: Outbox, relay: SmtpServer
) -> None:
    relay.without.add("SMTPUTF8")
    mail_id = await outbox.send(JUERGEN, ADA, cc=[BEN])

    (ran,) = await outbox.run()

    assert isinstance(ran.outcome, Dead)
    assert await outbox.results(mail_id) == ["failed", "sent", "sent"]
    (message,) = relay.messages
    assert message.recipients == (ADA, BEN)
    assert message.content.isascii()
    assert f"To: {ADA}\r\nCc: {BEN}\r\n".encode() in message.content
    assert b"SMTPUTF8" in (await outbox.row(mail_id))["last_error"].encode()


async def test_a_retry_without_smtputf8_reaches_the_others_too(
    outbox: Outbox, relay: SmtpServer
) -> None:
    relay.without.add("SMTPUTF8")
    relay.on("RCPT", "450 4.2.1 busy", argument=ADA)
    mail_id = await outbox.send(JUERGEN, ADA)

    await outbox.run()
    await outbox.run_after(minutes=2)

    assert await outbox.results(mail_id) == ["failed", "sent"]
    assert [each.recipients for each in relay.messages] == [(ADA,)]


@pytest.mark.parametrize("field", ["sender", "reply_to"])
async def test_a_sender_that_needs_smtputf8_fails_the_mail(
    outbox: Outbox, relay: SmtpServer, field: str
) -> None:
    """Without its sender, or with replies to another address, it is not the same mail."""
    relay.without.add("SMTPUTF8")
    mail_id = await outbox.send(ADA, **{field: JUERGEN if field == "sender" else [JUERGEN]})

    await outbox.run()

    assert await outbox.results(mail_id) == ["failed"]
    assert relay.messages == []


async def test_a_relay_with_smtputf8_gets_all_addresses_at_once(
    outbox: Outbox, relay: SmtpServer
) -> None:
    mail_id = await outbox.send(JUERGEN, ADA)

    await outbox.run()

    assert await outbox.results(mail_id) == ["sent", "sent"]
    assert [each.recipients for each in relay.messages] == [(JUERGEN, ADA)]


async def test_a_crash_after_the_result_sends_no_second_copy(
    outbox: Outbox, relay: SmtpServer
) -> None:
    """The worker died between the result and the settle: the next attempt finds the row."""
    mail_id = await outbox.send(ADA)
    await outbox.run()
    # The lease and the settled attempt are undone, as if the process had been killed.
    await outbox.app.pool.execute("DELETE FROM penstock.attempt WHERE item_id = $1", mail_id)
    await outbox.app.pool.execute(
        "INSERT INTO penstock.ready (due_at, id, lane_id, attempt, forgiven)"
        " SELECT due_at, id, lane_id, 0, 0 FROM penstock.item WHERE id = $1",
        mail_id,
    )

    (ran,) = await outbox.run()

    assert isinstance(ran.outcome, Done)
    assert len(relay.messages) == 1


async def run_without_lease(outbox: Outbox, relay: SmtpServer, reply: str) -> None:
    """Run what is due; the lease ends while the relay takes its time for the final reply."""
    is_lost = asyncio.Event()
    relay.on("DOT", reply, when=is_lost)

    async def lose_lease() -> None:
        await relay.reached("DOT")
        async with outbox.app.pool.acquire() as db:
            assert await rescue(db, now=outbox.clock.now() + timedelta(minutes=1)) == 1
        is_lost.set()

    await asyncio.gather(outbox.run(), lose_lease())


async def test_a_late_sent_result_saves_a_second_copy(outbox: Outbox, relay: SmtpServer) -> None:
    """The relay has the message, whoever holds the mail now."""
    mail_id = await outbox.send(ADA)

    await run_without_lease(outbox, relay, "250 2.0.0 queued")
    late = await outbox.row(mail_id)
    await outbox.run_after(minutes=2)

    assert (late["status"], late["recipients_sent"]) == ("queued", 1)
    assert (await outbox.row(mail_id))["status"] == "sent"
    assert await outbox.results(mail_id) == ["sent"]
    assert len(relay.messages) == 1


async def test_a_late_failure_changes_nothing(outbox: Outbox, relay: SmtpServer) -> None:
    """A worker that stalled must not end a mail that another one has now."""
    mail_id = await outbox.send(ADA)

    await run_without_lease(outbox, relay, "550 5.1.1 no such user")
    late = await outbox.row(mail_id)
    suppressed = body_of(await outbox.client.get("/mail-suppressions"))["suppressions"]
    await outbox.run_after(minutes=2)

    assert (late["status"], late["recipients_failed"]) == ("queued", 0)
    assert suppressed == []
    assert await outbox.results(mail_id) == ["sent"]
    assert len(relay.messages) == 2


async def test_a_cancelled_attempt_still_writes_that_the_mail_was_sent(outbox: Outbox) -> None:
    """A worker that stops may have sent the mail just now; without the row it is sent again."""
    mail_id = await outbox.send(ADA)
    writer = ResultWriter(outbox.app.pool, announce=announce_nothing, log=get_logger())
    row = ResultRow(mail_id=mail_id, token=77, recipient_no=0, result="sent", class_="done")
    begun = asyncio.Event()

    async def write() -> None:
        begun.set()
        await writer.write(MailEnding([row], []))

    async with asyncio.TaskGroup() as group:
        task = spawn(group, write())
        await begun.wait()
        task.cancel()

    assert task.cancelled()
    assert await outbox.results(mail_id) == ["sent"]


async def test_a_late_result_of_a_mail_that_is_gone_leaves_no_row(outbox: Outbox) -> None:
    """Retention would never find it."""
    written = await outbox.app.pool.fetch(
        "SELECT * FROM penstock.write_mail_results($1)",
        '[{"mail_id":77,"token":77,"recipient_no":0,"result":"sent","class":"done"}]',
    )

    assert [(row["is_fenced"], row["is_new"]) for row in written] == [(False, False)]
    assert await outbox.results(77) == []


@pytest.mark.usefixtures("relay")
async def test_a_mail_that_sql_wrote_wrongly_fails_alone(outbox: Outbox) -> None:
    bad = await outbox.app.pool.fetchval(
        "SELECT penstock.send_mail('a@example.com', '{b@example.org}', E'Hi\\nBcc: x@y.org', 't')"
    )
    odd = await outbox.app.pool.fetchval(
        "SELECT penstock.send_mail('a@example.com', '{b@example.org}', 'Hi', 't',"
        " headers => '{\"X-A\": 1}')"
    )
    good = await outbox.send(ADA)

    await outbox.run()

    assert (await outbox.row(bad))["last_error"].startswith("subject: ")
    assert (await outbox.row(odd))["status"] == "failed"
    assert (await outbox.row(good))["status"] == "sent"


async def test_a_mail_that_cannot_be_signed_fails_for_good(
    outbox: Outbox, relay: SmtpServer
) -> None:
    """A repeat would be refused as well, and would only look like a slow relay."""

    def refuse(content: bytes, domain: str) -> bytes:
        raise InvalidInput("message", f"cannot be signed: {len(content)} bytes of {domain}")

    mail_id = await outbox.send(ADA)
    kind = outbox.app.kinds["penstock.mail"]
    assert isinstance(kind.handle, Send)
    outbox.app.kinds[kind.lane] = replace(kind, handle=replace(kind.handle, sign=refuse))

    (ran,) = await outbox.run()

    assert isinstance(ran.outcome, Dead)
    assert (await outbox.row(mail_id))["status"] == "failed"
    assert relay.messages == []


async def test_a_limit_of_a_domain_leaves_others_alone(outbox: Outbox, relay: SmtpServer) -> None:
    await outbox.limit("domain", "example.org", per_hour=1)
    first = await outbox.send(ADA)
    second = await outbox.send(BEN, "eve@example.net")

    await outbox.run()

    assert await outbox.results(first) == ["sent"]
    assert await outbox.results(second) == ["sent"]
    assert (await outbox.row(second))["status"] == "queued"
    assert [each.recipients for each in relay.messages] == [(ADA,), ("eve@example.net",)]


async def test_domains_of_a_group_share_a_limit(outbox: Outbox, relay: SmtpServer) -> None:
    """One provider receives for both domains, and counts them together."""
    group = {"name": "provider", "domains": ["Example.ORG", "example.net"]}
    body_of(await outbox.client.put("/mail-groups", json=group))
    await outbox.limit("group", "provider", per_hour=1)
    first = await outbox.send(ADA, "ann@example.net")
    second = await outbox.send("eve@example.net", "kim@example.com")

    await outbox.run()

    assert await outbox.results(first) == ["sent", "sent"]
    assert await outbox.results(second) == ["sent"]
    assert [set(each.recipients) for each in relay.messages] == [
        {ADA, "ann@example.net"},
        {"kim@example.com"},
    ]


async def test_a_group_without_domains_is_gone(
    outbox: Outbox,
) -> None:
    async def put(name: str, *domains: str) -> None:
        body_of(
            await outbox.client.put("/mail-groups", json={"name": name, "domains": list(domains)})
        )

    await put("one", "a.example")
    await put("two", "b.example")
    await put("one")
    left = body_of(await outbox.client.get("/mail-groups"))["groups"]

    assert left == [{"name": "two", "domains": ["b.example"]}]


@pytest.mark.parametrize(
    ("group", "field"),
    [
        ({"name": "Big One", "domains": ["a.example"]}, "name"),
        ({"name": "one", "domains": ["a.example", "b@c.example"]}, "domains[1]"),
        ({"name": "one", "domains": ["m\u00fcnchen.de"]}, "domains[0]"),
    ],
)
async def test_a_bad_group_is_refused_with_its_field(
    outbox: Outbox, group: dict[str, object], field: str
) -> None:
    refused = await outbox.client.put("/mail-groups", json=group)

    assert refused.status_code == 400
    assert refused.json()["field"] == field


async def test_a_named_relay_that_is_gone_keeps_the_mail_waiting(outbox: Outbox) -> None:
    async with serving(SmtpServer()) as server:
        await outbox.relay_to(server, "gone")
        mail_id = await outbox.send(ADA, relay="gone")
        await outbox.app.pool.execute("DELETE FROM penstock.mail_relay")

        (ran,) = await outbox.run()

    assert isinstance(ran.outcome, Snooze)
    assert (await outbox.row(mail_id))["status"] == "queued"
