"""The dispatch document, from top to bottom: each sentence through the view, REST or SMTP."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from penstock.base.aio import alongside
from penstock.base.clock import FakeClock
from penstock.base.errors import BadSetting
from penstock.base.settings import Settings, read_section
from penstock.domains.mail.enqueue import Mailer
from penstock.domains.mail.operate import cancel_mail
from tests.api.scene import claim_all
from tests.domains.mail.outbox import ADA, BEN, Outbox, a_mail, body_of, opened_outbox
from tests.smtp_server import SmtpServer, serving

PATIENCE = 30.0  # Seconds; without the behaviour it would wait for ever.
BUSY = "451 4.3.0 try again later"
CLAIM = """
    WITH candidates AS (
        SELECT id
        FROM penstock.mail_outbox
        WHERE status = 'queued' AND next_attempt_at <= NOW() AND retry_count < 5
        ORDER BY next_attempt_at ASC, id ASC
        LIMIT 10
        FOR UPDATE SKIP LOCKED
    )
    UPDATE penstock.mail_outbox
    SET status = 'dispatching', last_attempt_at = NOW()
    FROM candidates
    WHERE mail_outbox.id = candidates.id
    RETURNING mail_outbox.*
"""


# ----------------------------------------------------------------------- the database strategy


@pytest.mark.covers("C1")
async def test_two_workers_never_send_the_same_mail(
    dsn: str, outbox: Outbox, relay: SmtpServer
) -> None:
    sent = [await outbox.send(ADA, subject=str(number)) for number in range(20)]
    async with opened_outbox(dsn, outbox.clock) as second:
        await asyncio.gather(outbox.run(), second.run())

    assert len(relay.messages) == len(sent)
    assert {(await outbox.row(each))["status"] for each in sent} == {"sent"}


@pytest.mark.covers("C2", "C6")
async def test_the_claim_is_committed_before_anything_is_sent(
    outbox: Outbox, relay: SmtpServer
) -> None:
    """Other connections see it, and no transaction is open while the relay takes its time."""
    mail_id = await outbox.send(ADA)
    relay.on("DOT", hang=True)
    stop = asyncio.Event()

    async with alongside(outbox.app.run_worker(stop)):
        await relay.reached("DOT")
        seen = await outbox.row(mail_id)
        open_transactions = await outbox.app.pool.fetchval(
            "SELECT count(*) FROM pg_stat_activity "
            "WHERE datname = current_database() AND state LIKE 'idle in transaction%'"
        )
        relay.drop_connections()

    assert seen["status"] == "dispatching"
    assert open_transactions == 0


@pytest.mark.covers("C4")
async def test_a_mail_that_is_locked_is_skipped(outbox: Outbox, relay: SmtpServer) -> None:
    """An operator's open transaction keeps a worker from one mail, and not from the others."""
    cancelled = await outbox.send(ADA)
    others = [await outbox.send(ADA) for _ in range(3)]

    async with outbox.app.pool.acquire() as db, db.transaction():
        await cancel_mail(db, cancelled, who="test")
        async with asyncio.timeout(PATIENCE):
            ran = await outbox.run()

    assert [each.item_id for each in ran] == others
    assert len(relay.messages) == 3
    assert (await outbox.row(cancelled))["status"] == "cancelled"


@pytest.mark.covers("C7", "C11", "C12")
async def test_a_claim_that_fails_in_the_middle_has_not_begun(
    outbox: Outbox, relay: SmtpServer
) -> None:
    """Selection and change of status are one statement: a mail is never between the two."""
    mail_id = await outbox.send(ADA)
    await outbox.app.pool.execute(
        "ALTER TABLE penstock.lease ADD CONSTRAINT fails_in_the_middle CHECK (false)"
    )
    with pytest.raises(asyncpg.CheckViolationError, match="fails_in_the_middle"):
        await outbox.run()
    row = await outbox.row(mail_id)
    await outbox.app.pool.execute("ALTER TABLE penstock.lease DROP CONSTRAINT fails_in_the_middle")
    await outbox.run()

    assert (row["status"], row["last_attempt_at"]) == ("queued", None)
    assert (await outbox.row(mail_id))["status"] == "sent"
    assert len(relay.messages) == 1


@pytest.mark.covers("C3", "C9")
async def test_a_claim_takes_a_batch_at_most(outbox: Outbox, relay: SmtpServer) -> None:
    await outbox.set_lane(batch_size=2)
    sent = [await outbox.send(ADA) for _ in range(3)]
    seen: list[str] = []

    async def look() -> None:
        await relay.reached("DOT")
        seen.extend([(await outbox.row(each))["status"] for each in sent])
        relay.drop_connections()

    relay.on("DOT", hang=True)
    await asyncio.gather(outbox.run(), look())

    assert seen == ["dispatching", "dispatching", "queued"]


@pytest.mark.covers("C3")
async def test_only_due_mails_in_the_queue_are_selected(outbox: Outbox, relay: SmtpServer) -> None:
    """Neither a mail that is due later, nor one that has ended."""
    later = datetime(2030, 1, 1, 13, tzinfo=UTC)
    waiting = await outbox.send(ADA, not_before=later)
    due = [await outbox.send(ADA) for _ in range(3)]
    cancelled = await outbox.send(ADA)
    await outbox.client.post(f"/mails/{cancelled}/cancel")

    ran = await outbox.run()

    assert [each.item_id for each in ran] == due
    assert (await outbox.row(waiting))["next_attempt_at"] == later
    assert len(relay.messages) == 3
    assert [each.item_id for each in await outbox.run_after(hours=1)] == [waiting]


@pytest.mark.covers("C5", "C17", "C36")
async def test_a_claimed_mail_is_dispatching_and_its_attempt_has_begun(
    outbox: Outbox, relay: SmtpServer
) -> None:
    """The status is `dispatching`, and lastAttemptAt is set when the attempt begins."""
    mail_id = await outbox.send(ADA)
    before = await outbox.row(mail_id)
    seen: list[dict[str, Any]] = []

    async def look() -> None:
        await relay.reached("DOT")
        seen.append(await outbox.row(mail_id))
        relay.drop_connections()

    relay.on("DOT", hang=True)
    await asyncio.gather(outbox.run(), look())

    assert (before["status"], before["last_attempt_at"]) == ("queued", None)
    assert seen[0]["status"] == "dispatching"
    assert seen[0]["last_attempt_at"] == outbox.clock.now()


async def test_the_claim_of_the_document_fails_with_a_pointer(outbox: Outbox) -> None:
    """Workers claim items; a claim on the view would seem to work and send nothing."""
    await outbox.send(ADA)

    with pytest.raises(asyncpg.PostgresError, match="penstock_worker_sends_mail"):
        await outbox.app.pool.fetch(CLAIM)
    with pytest.raises(asyncpg.FeatureNotSupportedError, match="penstock worker sends"):
        await outbox.app.pool.execute("INSERT INTO penstock.mail_outbox (id) VALUES (1)")


@pytest.mark.covers("C8")
async def test_mails_leave_in_the_order_of_next_attempt_and_id(
    outbox: Outbox, relay: SmtpServer
) -> None:
    noon = outbox.clock.now()
    for minute, subject in ((3, "third"), (1, "first"), (2, "second"), (3, "fourth")):
        due_at = noon - timedelta(hours=1) + timedelta(minutes=minute)
        await outbox.send(ADA, subject=subject, not_before=due_at)

    await outbox.run()

    subjects = [each.content.split(b"Subject: ")[1].split(b"\r\n")[0] for each in relay.messages]
    assert subjects == [b"first", b"second", b"third", b"fourth"]


@pytest.mark.covers("C13")
async def test_the_isolation_is_read_committed(outbox: Outbox) -> None:
    """A mail that is not committed is not seen; one that is, is."""
    async with outbox.app.pool.acquire() as db:
        transaction = db.transaction()
        await transaction.start()
        await outbox.app.api(Mailer).send(a_mail(ADA), connection=db)
        unseen = await outbox.run()
        await transaction.commit()
    seen = await outbox.run()

    assert unseen == []
    assert len(seen) == 1
    assert await outbox.app.pool.fetchval("SHOW transaction_isolation") == "read committed"


# ------------------------------------------------------------------------------------ the schema


@pytest.mark.covers("C14", "C15", "C16", "C17", "C38")
async def test_a_new_mail_has_the_fields_of_the_document(outbox: Outbox) -> None:
    """In snake_case; instants have a time zone."""
    mail_id = await outbox.send(ADA)

    row = await outbox.row(mail_id)

    assert row["retry_count"] == 0
    assert row["next_attempt_at"] == row["created_at"]
    assert row["next_attempt_at"].tzinfo is not None
    assert row["last_error"] is None
    assert row["last_attempt_at"] is None
    types = await outbox.app.pool.fetch(
        "SELECT attname, format_type(atttypid, atttypmod) AS type FROM pg_attribute"
        " WHERE attrelid = 'penstock.mail_outbox'::regclass AND attname = ANY ($1)",
        ["retry_count", "next_attempt_at", "last_error", "last_attempt_at"],
    )
    assert {row["attname"]: row["type"] for row in types} == {
        "retry_count": "integer",
        "next_attempt_at": "timestamp with time zone",
        "last_error": "text",
        "last_attempt_at": "timestamp with time zone",
    }


@pytest.mark.covers("C18", "C19", "C20")
async def test_failures_are_counted_and_a_success_clears_the_error(
    outbox: Outbox, relay: SmtpServer
) -> None:
    """RetryCount rises with each failed attempt only; lastAttemptAt is set by a success too."""
    relay.on("DOT", BUSY)
    mail_id = await outbox.send(ADA)

    await outbox.run()
    failed = await outbox.row(mail_id)
    await outbox.run_after(minutes=2)
    sent = await outbox.row(mail_id)

    assert (failed["status"], failed["retry_count"]) == ("queued", 1)
    assert failed["last_error"] == BUSY
    assert failed["last_attempt_at"] == outbox.clock.now() - timedelta(minutes=2)
    assert (sent["status"], sent["retry_count"], sent["last_error"]) == ("sent", 1, None)
    assert sent["last_attempt_at"] == outbox.clock.now()
    assert sent["next_attempt_at"] is not None


@pytest.mark.covers("C18")
async def test_a_snooze_is_not_counted(outbox: Outbox, relay: SmtpServer) -> None:
    relay.on("MAIL", "454 4.7.0 too many requests")
    mail_id = await outbox.send(ADA)

    await outbox.run()

    row = await outbox.row(mail_id)
    assert (row["status"], row["retry_count"]) == ("queued", 0)
    assert row["next_attempt_at"] > outbox.clock.now()


@pytest.mark.covers("C16")
async def test_the_last_error_is_short(outbox: Outbox, relay: SmtpServer) -> None:
    relay.on("DOT", "451 4.3.0 " + "x" * 480)
    mail_id = await outbox.send(ADA)

    await outbox.run()

    row = await outbox.row(mail_id)
    assert row["last_error"].startswith("451 4.3.0 xxx")
    assert len(row["last_error"]) <= 500


# ----------------------------------------------------------------------------------- the backoff


@pytest.mark.covers("C21", "C22", "C25", "C26", "C27", "C33", "C37")
async def test_without_jitter_the_delays_are_60_120_240_and_480_seconds(
    outbox: Outbox, relay: SmtpServer
) -> None:
    """N is counted after the increment, so the first delay is twice the base."""
    await outbox.set_lane(backoff_jitter=0.0)
    relay.on("DOT", BUSY, times=5)
    mail_id = await outbox.send(ADA)

    delays: list[float] = []
    for _ in range(4):
        assert len(await outbox.run()) == 1
        row = await outbox.row(mail_id)
        delays.append((row["next_attempt_at"] - outbox.clock.now()).total_seconds())
        outbox.clock.advance(row["next_attempt_at"] - outbox.clock.now())

    assert delays == [60, 120, 240, 480]


@pytest.mark.covers("C24", "C33")
async def test_jitter_moves_a_delay_by_its_share_at_most(outbox: Outbox, relay: SmtpServer) -> None:
    relay.on("DOT", BUSY, times=20)
    sent = [await outbox.send(ADA) for _ in range(20)]

    await outbox.run()

    rows = [await outbox.row(each) for each in sent]
    delays = {(row["next_attempt_at"] - outbox.clock.now()).total_seconds() for row in rows}
    assert all(48 <= each <= 72 for each in delays)
    assert min(delays) < 60 < max(delays)


@pytest.mark.covers("C23", "C35")
async def test_no_delay_is_above_the_maximum(outbox: Outbox, relay: SmtpServer) -> None:
    """The document caps before the jitter; here the jitter does not exceed the maximum either."""
    await outbox.set_lane(backoff_cap=timedelta(seconds=50), backoff_jitter=1.0)
    relay.on("DOT", BUSY, times=20)
    sent = [await outbox.send(ADA) for _ in range(20)]

    await outbox.run()

    rows = [await outbox.row(each) for each in sent]
    assert max(row["next_attempt_at"] - outbox.clock.now() for row in rows) <= timedelta(seconds=50)


@pytest.mark.covers("C23")
async def test_a_delay_above_the_maximum_is_the_maximum(outbox: Outbox, relay: SmtpServer) -> None:
    await outbox.set_lane(backoff_cap=timedelta(seconds=50), backoff_jitter=0.0)
    relay.on("DOT", BUSY, times=3)
    sent = [await outbox.send(ADA) for _ in range(3)]

    await outbox.run()

    rows = [await outbox.row(each) for each in sent]
    delays = {row["next_attempt_at"] - outbox.clock.now() for row in rows}
    assert delays == {timedelta(seconds=50)}


# ----------------------------------------------------------------------------- the configuration


@pytest.mark.covers("C28", "C29", "C30", "C31")
async def test_the_defaults_are_those_of_the_document(outbox: Outbox) -> None:
    for name in ("penstock.mail", "penstock.mail.bulk"):
        lane = (await outbox.client.get(f"/lanes/{name}")).json()
        assert lane["max_attempts"] == 5
        assert lane["backoff"] == {
            "base": "PT30S",
            "multiplier": 2.0,
            "cap": "PT3600S",
            "jitter": 0.2,
            "first_exponent": 1,
        }


@pytest.mark.covers("C28", "C29", "C30", "C31")
async def test_a_variable_that_is_set_holds_at_every_start(
    dsn: str, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also for a lane that exists already, whatever was set meanwhile."""
    async with opened_outbox(dsn, clock) as first:
        await first.set_lane(max_attempts=9, backoff_base=timedelta(seconds=9))
    monkeypatch.setenv("DISPATCH_MAX_ATTEMPTS", "7")
    monkeypatch.setenv("DISPATCH_BACKOFF_MAX_SECONDS", "1200")
    monkeypatch.setenv("DISPATCH_BACKOFF_JITTER", "0.5")

    async with opened_outbox(dsn, clock) as second:
        some = (await second.client.get("/lanes/penstock.mail")).json()
    monkeypatch.setenv("DISPATCH_BACKOFF_BASE_SECONDS", "40")
    async with opened_outbox(dsn, clock) as third:
        all_ = (await third.client.get("/lanes/penstock.mail")).json()

    assert (some["max_attempts"], some["backoff"]["jitter"]) == (7, 0.5)
    assert (some["backoff"]["base"], some["backoff"]["cap"]) == ("PT9S", "PT1200S")
    assert all_["backoff"]["base"] == "PT40S"


async def test_a_field_that_a_variable_sets_cannot_be_set_otherwise(
    dsn: str, clock: FakeClock
) -> None:
    """The next start would silently undo it."""
    async with opened_outbox(dsn, clock, settings={"max_attempts": 7}) as outbox:
        refused = await outbox.client.patch("/lanes/penstock.mail", json={"max_attempts": 9})
        allowed = await outbox.client.patch("/lanes/penstock.mail", json={"batch_size": 9})

    assert refused.status_code == 403
    assert "DISPATCH_MAX_ATTEMPTS sets it" in refused.text
    assert allowed.status_code == 200


async def test_a_process_without_the_variables_leaves_what_others_have_fixed(
    dsn: str, clock: FakeClock
) -> None:
    """An API or a command beside the workers need not have the same environment."""
    fixed: dict[str, Any] = {"settings": {"max_attempts": 7}, "mail_on_unknown": "hold"}
    async with opened_outbox(dsn, clock, **fixed), opened_outbox(dsn, clock) as other:
        refused = await other.client.patch("/lanes/penstock.mail", json={"max_attempts": 9})
        lane = (await other.client.get("/lanes/penstock.mail")).json()

    assert refused.status_code == 403
    assert "DISPATCH_MAX_ATTEMPTS sets it" in refused.text
    assert (lane["max_attempts"], lane["on_lost"]) == (7, "hold")


async def test_another_value_of_a_variable_replaces_the_one_before(
    dsn: str, clock: FakeClock
) -> None:
    async with opened_outbox(dsn, clock, settings={"max_attempts": 7}):
        pass
    async with opened_outbox(dsn, clock, settings={"max_attempts": 8}) as outbox:
        lane = (await outbox.client.get("/lanes/penstock.mail")).json()

    assert lane["max_attempts"] == 8


async def test_a_field_can_be_set_again_once_its_variable_is_released(
    dsn: str, clock: FakeClock
) -> None:
    """Nobody but the operator knows that no process has the variable any more."""
    async with opened_outbox(dsn, clock, settings={"max_attempts": 7}):
        pass
    async with opened_outbox(dsn, clock) as outbox:
        released = await outbox.app.pool.fetchval(
            "UPDATE penstock.lane SET guards = guards - 'set:max_attempts'"
            " WHERE name = 'penstock.mail' RETURNING true"
        )
    async with opened_outbox(dsn, clock) as outbox:
        changed = await outbox.client.patch("/lanes/penstock.mail", json={"max_attempts": 9})

    assert released
    assert body_of(changed)["max_attempts"] == 9


@pytest.mark.covers("C40")
@pytest.mark.parametrize(
    ("variable", "values"),
    [
        ("DISPATCH_BACKOFF_JITTER", {"DISPATCH_BACKOFF_JITTER": "1.5"}),
        ("DISPATCH_BACKOFF_BASE_SECONDS", {"DISPATCH_BACKOFF_BASE_SECONDS": "0"}),
        ("DISPATCH_BACKOFF_MAX_SECONDS", {"DISPATCH_BACKOFF_MAX_SECONDS": "10"}),
        ("DISPATCH_BACKOFF_MAX_SECONDS", {"DISPATCH_BACKOFF_MAX_SECONDS": "2592001"}),
        ("DISPATCH_MAX_ATTEMPTS", {"DISPATCH_MAX_ATTEMPTS": "0"}),
    ],
)
def test_a_wrong_value_is_refused_at_start_with_the_name_of_the_variable(
    monkeypatch: pytest.MonkeyPatch, variable: str, values: dict[str, str]
) -> None:
    for name, value in values.items():
        monkeypatch.setenv(name, value)

    with pytest.raises(BadSetting) as refused:
        read_section(Settings)

    assert refused.value.name == variable
    assert refused.value.exit_code == 2


@pytest.mark.covers("C32")
async def test_a_mail_whose_attempts_are_used_up_fails_and_is_never_tried_again(
    outbox: Outbox, relay: SmtpServer
) -> None:
    relay.on("DOT", BUSY, times=100)
    mail_id = await outbox.send(ADA)

    for _ in range(5):
        await outbox.run()
        outbox.clock.advance(timedelta(hours=2))
    row = await outbox.row(mail_id)

    assert (row["status"], row["retry_count"]) == ("failed", 5)
    assert await outbox.run_after(days=30) == []
    assert relay.steps["DOT"] == 5


@pytest.mark.covers("C3", "C10")
async def test_a_lower_maximum_holds_for_mails_that_wait(outbox: Outbox, relay: SmtpServer) -> None:
    """The maximum is no parameter of a claim: it is read when an attempt has failed."""
    relay.on("DOT", BUSY, times=2)
    mail_id = await outbox.send(ADA)
    await outbox.run()
    lower = await outbox.client.patch("/lanes/penstock.mail", json={"max_attempts": 2})

    await outbox.run_after(minutes=2)

    assert lower.status_code == 200
    row = await outbox.row(mail_id)
    assert (row["status"], row["retry_count"]) == ("failed", 2)


# --------------------------------------------------------------- what the document leaves open


@pytest.mark.covers("C34")
async def test_a_mail_of_a_dead_worker_is_not_stuck_in_dispatching(
    outbox: Outbox, relay: SmtpServer
) -> None:
    """The document never selects such a row again; here its lease runs out."""
    mail_id = await outbox.send(ADA)
    await claim_all(outbox.app, "penstock.mail")
    stuck = await outbox.row(mail_id)

    await outbox.run_after(seconds=31)

    assert stuck["status"] == "dispatching"
    row = await outbox.row(mail_id)
    assert (row["status"], row["retry_count"]) == ("sent", 1)
    assert len(relay.messages) == 1


@pytest.mark.covers("C36")
async def test_a_partly_sent_mail_is_queued_and_then_failed(
    outbox: Outbox, relay: SmtpServer
) -> None:
    """Queued while a recipient is open; failed if one of them did not get it in the end."""
    relay.on("RCPT", "450 4.2.1 busy", argument=BEN)
    relay.on("RCPT", "550 5.1.1 no such user", argument=BEN)
    mail_id = await outbox.send(ADA, BEN)

    await outbox.run()
    partly = await outbox.row(mail_id)
    await outbox.run_after(minutes=2)
    ended = await outbox.row(mail_id)

    assert (partly["status"], partly["recipients_sent"]) == ("queued", 1)
    assert (ended["status"], ended["recipients_sent"]) == ("failed", 1)
    assert (ended["recipients_failed"], ended["last_error"]) == (1, "550 5.1.1 no such user")


@pytest.mark.covers("C39")
async def test_a_permanent_refusal_is_not_retried(outbox: Outbox, relay: SmtpServer) -> None:
    relay.on("RCPT", "550 5.1.1 no such user")
    mail_id = await outbox.send(ADA)

    await outbox.run()

    row = await outbox.row(mail_id)
    assert (row["status"], row["retry_count"]) == ("failed", 1)
    assert row["last_error"] == "550 5.1.1 no such user"
    assert await outbox.run_after(days=1) == []


@pytest.mark.covers("C36")
async def test_a_held_mail_is_failed_and_says_so(dsn: str, clock: FakeClock) -> None:
    async with (
        serving(SmtpServer()) as relay,
        opened_outbox(dsn, clock, mail_on_unknown="hold") as outbox,
    ):
        await outbox.relay_to(relay)
        relay.on("DOT", drop=True)
        mail_id = await outbox.send(ADA)

        await outbox.run()

        row = await outbox.row(mail_id)
        assert row["status"] == "failed"
        assert row["last_error"].startswith("held: the relay may have the mail")
