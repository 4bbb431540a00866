"""The execution of payments, built in: all in one transaction, and each payment once."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial

import pytest
from httpx import ASGITransport
from structlog.testing import capture_logs

from penstock.api import create_app
from penstock.base.clock import FakeClock
from penstock.compose import payments
from penstock.contract import Resources, Runtime
from penstock.domains.outbox.control.limits import AmountLimits, put_limits
from penstock.domains.outbox.enqueue import BATCH_MAX
from penstock.domains.payments.execute import (
    LOCK_WAIT_MAX,
    TRANSACTION_MAX,
    BuiltInEngine,
    Executed,
    Execution,
    Refused,
)
from penstock.domains.payments.lanes import LANE
from penstock.domains.payments.notify import send_nothing
from penstock.domains.payments.runtime import build as build_domain
from penstock.kernel.api_keys import create_key
from penstock.kernel.item import DONE, Done, Snooze
from penstock.kernel.sweep import rescue
from penstock.postgres.pool import Connection
from tests.api.scene import caller
from tests.domains.outbox.sending.ledger import Ledger
from tests.domains.payments.executing.scene import LEASE_OVER, NOW, Scene, opened_scene
from tests.domains.payments.scene import IBAN, OTHER_IBAN, a_body
from tests.fault.waiting import until

SECRET = "what only the row may have"


@pytest.mark.covers("A15")
async def test_a_due_payment_becomes_an_instruction_and_is_processing(scene: Scene) -> None:
    await scene.schedule("p-1")

    (attempted,) = await scene.run_payments()

    assert isinstance(attempted.outcome, Done)
    payment = await scene.payment("p-1")
    assert payment["status"] == "PROCESSING"
    assert payment["accepted_at"] == payment["processing_at"]
    shown = (await scene.client.get(f"/outbox/instructions/{payment['outbox_id']}")).json()
    instruction = shown["instruction"]
    assert (instruction["instruction_id"], instruction["idempotency_key"]) == ("p-1", "p-1")
    assert (instruction["participant_id"], instruction["rail_type"]) == ("ada", "loopback")
    payload = shown["payload"]
    assert (payload["amount"], payload["currency"]) == ("12.50", "EUR")
    assert payload["destination"].items() >= {"iban": OTHER_IBAN, "bic": "PSSTFRPPXXX"}.items()
    assert payload["debtor"].items() >= {"name": "Ada", "iban": IBAN}.items()


async def test_the_key_that_scheduled_a_payment_cannot_approve_it(scene: Scene) -> None:
    """It has produced the instruction, as if it had sent it to the outbox itself."""
    async with scene.app.pool.acquire() as db:
        await put_limits(
            db,
            AmountLimits(scope="all", name=None, currency="EUR", approval_above=Decimal(10)),
            who="test",
        )
        first, token = await create_key(db, "both", ["produce", "approve"], who="cli:ann")
        _, made = await create_key(db, "made", ["approve"], who=first.caller)
        _, other = await create_key(db, "other", ["approve"], who="cli:ann")
    transport = ASGITransport(create_app(scene.app))
    async with (
        caller(transport, token) as both,
        caller(transport, made) as own,
        caller(transport, other) as second,
    ):
        body = a_body("p-1", **NOW)
        assert (await both.post("/payments", json=body)).status_code == 202
        await scene.schedule("p-2")
        await scene.run_payments()
        ids = {each: (await scene.payment(each))["outbox_id"] for each in ("p-1", "p-2")}
        path, reason = f"/outbox/instructions/{ids['p-1']}/approve", {"reason": "because"}

        refused = [await each.post(path, json=reason) for each in (both, own)]
        allowed = await second.post(path, json=reason)
        scheduled_in_python = await both.post(
            f"/outbox/instructions/{ids['p-2']}/approve", json=reason
        )

    assert [each.status_code for each in refused] == [403, 403]
    assert allowed.status_code == 200, allowed.text
    assert scheduled_in_python.status_code == 200, "no key has scheduled it"


async def test_a_batch_is_executed_in_one_transaction(scene: Scene) -> None:
    """So that a crash leaves either all of it or nothing."""
    await scene.schedule(*(f"p-{number}" for number in range(20)))

    attempted = await scene.run_payments()

    assert len(attempted) == 20
    written = await scene.app.pool.fetchval(
        "SELECT count(DISTINCT xmin::text) FROM penstock.payment"
    )
    also = await scene.app.pool.fetchval(
        "SELECT count(DISTINCT xmin::text) FROM penstock.outbox_instruction"
    )
    assert (written, also) == (1, 1)


@pytest.mark.covers("A42", "A87")
async def test_a_payment_whose_worker_died_after_the_commit_is_not_executed_again(
    scene: Scene,
) -> None:
    """The item was never settled, so another worker gets it; the payment's own state decides."""
    await scene.schedule("p-1")
    await scene.execute_and_die()
    assert await scene.status("p-1") == "PROCESSING"

    scene.clock.advance(LEASE_OVER)
    (again,) = await scene.run_payments()

    assert isinstance(again.outcome, Done)
    assert again.item_id == (await scene.payment("p-1"))["item_id"]
    count = await scene.app.pool.fetchval("SELECT count(*) FROM penstock.outbox_instruction")
    assert count == 1


@pytest.mark.covers("A42")
async def test_a_payment_that_the_rail_refused_meanwhile_was_dispatched(
    scene: Scene, ledger: Ledger
) -> None:
    """Shown as dead, it would look as if the rail had never had it, and might be paid twice."""
    ledger.orders += ["REJECTED"]
    await scene.schedule("p-1")
    await scene.execute_and_die()
    await scene.run_outbox()
    assert await scene.status("p-1") == "REJECTED"

    scene.clock.advance(LEASE_OVER)
    (again,) = await scene.run_payments()

    assert isinstance(again.outcome, Done)
    (row,) = await scene.log("p-1")
    assert (row["action"], row["status_after"]) == ("DISPATCHED", "DISPATCHED")


async def test_a_worker_that_lost_its_lease_does_not_execute_a_rescheduled_payment(
    scene: Scene,
) -> None:
    """Its item went back to the queue, and a person gave the payment another day."""
    await scene.schedule("p-1", "p-2")
    go_on = await scene.claim_and_stall()
    async with scene.app.pool.acquire() as db:
        await rescue(db, now=scene.clock.now() + LEASE_OVER)
    later = (await scene.payment("p-1"))["scheduled_at"] + timedelta(days=1)
    moved = await scene.client.post(
        "/payments/p-1/reschedule", json={"execute_at": later.isoformat()}
    )
    assert moved.status_code == 200, moved.text

    outcomes = await go_on()

    (snoozed,) = [each for each in outcomes if isinstance(each, Snooze)]
    assert timedelta(0) < snoozed.after < timedelta(days=1), "it waits from now on, not from then"
    assert [type(each) for each in outcomes if each is not snoozed] == [Done]
    assert (await scene.status("p-1"), await scene.status("p-2")) == ("SCHEDULED", "PROCESSING")


async def test_a_rescheduled_payment_whose_new_instant_has_come_is_executed(
    scene: Scene,
) -> None:
    """Whoever holds it may execute it then; to wait once more would make it late."""
    await scene.schedule("p-1")
    go_on = await scene.claim_and_stall()
    await scene.app.pool.execute("UPDATE penstock.payment SET scheduled_at = clock_timestamp()")

    assert await go_on() == [DONE]

    assert await scene.status("p-1") == "PROCESSING"


async def test_an_instruction_that_is_refused_ends_only_its_own_payment(scene: Scene) -> None:
    """One wrong payment among 500 must not hold back the others."""
    await scene.schedule("p-1", "p-2", "p-3")
    await scene.spoil("p-2", rail_type="Not a rail")

    attempted = await scene.run_payments()

    assert sorted(type(each.outcome).__name__ for each in attempted) == ["Dead", "Done", "Done"]
    payment = await scene.payment("p-2")
    assert payment["status"] == "REJECTED"
    assert payment["reason"].startswith("rail_type: must be")
    never = (payment["outbox_id"], payment["accepted_at"], payment["processing_at"])
    assert never == (None, None, None)
    assert [await scene.status(each) for each in ("p-1", "p-3")] == ["PROCESSING"] * 2


async def test_an_instruction_that_is_known_with_other_content_ends_only_its_own_payment(
    scene: Scene,
) -> None:
    given = {"instruction_id": "p-1", "participant_id": "ada", "idempotency_key": "p-1"}
    payload = {"amount": "99.00", "currency": "EUR", "destination": {}}
    sent = await scene.client.post(
        "/outbox/instructions", json=given | {"rail_type": "loopback", "payload": payload}
    )
    assert sent.status_code == 201, sent.text
    await scene.schedule("p-1", "p-2")

    await scene.run_payments()

    assert (await scene.status("p-1"), await scene.status("p-2")) == ("REJECTED", "PROCESSING")
    assert "another payload" in (await scene.payment("p-1"))["reason"]


async def test_an_instruction_that_is_known_with_the_same_content_is_that_of_the_payment(
    scene: Scene,
) -> None:
    await scene.schedule("p-1", "p-2")
    await scene.run_payments()
    known = (await scene.payment("p-1"))["outbox_id"]
    async with scene.app.pool.acquire() as db, db.transaction():
        # As a database that was restored from a backup, without what came later.
        await db.execute("SET LOCAL session_replication_role = replica")
        await db.execute(
            "UPDATE penstock.payment SET status = 'SCHEDULED', outbox_id = NULL"
            " WHERE payment_id = 'p-1'"
        )
        await db.execute("DELETE FROM penstock.attempt")
        await db.execute(
            "INSERT INTO penstock.ready (due_at, id, lane_id, attempt, forgiven)"
            " SELECT due_at, id, lane_id, 0, 0 FROM penstock.item WHERE key = 'p-1'"
        )

    scene.clock.advance(timedelta(minutes=1))
    await scene.run_payments()

    payment = await scene.payment("p-1")
    assert (payment["status"], payment["outbox_id"]) == ("PROCESSING", known)
    assert await scene.app.pool.fetchval("SELECT count(*) FROM penstock.outbox_instruction") == 2


async def test_a_context_that_cannot_be_read_ends_only_its_own_payment(scene: Scene) -> None:
    await scene.schedule("p-1", "p-2")
    await scene.spoil("p-1", amount=None)

    await scene.run_payments()

    assert (await scene.status("p-1"), await scene.status("p-2")) == ("REJECTED", "PROCESSING")


@pytest.mark.covers("A83")
async def test_contexts_of_a_later_version_are_executed_side_by_side(scene: Scene) -> None:
    """During an upgrade an old worker gets what a new process has scheduled."""
    await scene.schedule("p-1", "p-2")
    await scene.spoil("p-2", version=2, purpose="a field of version 2")

    await scene.run_payments()

    assert (await scene.status("p-1"), await scene.status("p-2")) == ("PROCESSING", "PROCESSING")


async def test_a_cancelled_payment_is_not_executed(scene: Scene) -> None:
    """Whoever cancels it, the guard decides, also after the claim."""
    await scene.schedule("p-1")
    await scene.app.pool.execute("UPDATE penstock.payment SET status = 'CANCELLED'")

    (attempted,) = await scene.run_payments()

    assert isinstance(attempted.outcome, Done)
    assert await scene.app.pool.fetchval("SELECT count(*) FROM penstock.outbox_instruction") == 0
    assert await scene.status("p-1") == "CANCELLED"


async def test_an_engine_that_cannot_be_reached_leaves_the_payment_for_later(
    scene: Scene,
) -> None:
    await scene.schedule("p-1")
    await scene.app.pool.execute("UPDATE penstock.payment_item_type SET engine = 'temporal'")

    await scene.run_payments()
    await scene.app.pool.execute("UPDATE penstock.payment_item_type SET engine = 'builtin'")
    scene.clock.advance(timedelta(minutes=1))
    await scene.run_payments()

    assert await scene.status("p-1") == "PROCESSING", "a change takes effect with the next claim"


@pytest.mark.covers("A90")
async def test_a_payment_that_is_claimed_early_is_not_executed_before_its_time(
    scene: Scene,
) -> None:
    """By the database's clock, which the worker can only estimate."""
    await scene.set_lane(
        pre_start_buffer=timedelta(seconds=30),
        dispatch_interval=timedelta(0),
        jitter_window=timedelta(0),
    )
    due_at = datetime.now(UTC) + timedelta(seconds=2)
    await scene.schedule("p-1", execute_at=due_at.isoformat())
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(scene.app.run_worker(stop, lanes=[LANE]))

        await until(lambda: _is_executed(scene), within=60)

        stop.set()
    assert await scene.app.pool.fetchval("SELECT accepted_at >= scheduled_at FROM penstock.payment")


async def _is_executed(scene: Scene) -> bool:
    return await scene.status("p-1") == "PROCESSING"


async def test_each_step_can_be_replaced(dsn: str, clock: FakeClock, ledger: Ledger) -> None:
    """A team with rails of its own keeps the guard, the queue and the follow-ups."""
    called: list[str] = []

    async def execute(_db: Connection, executions: Sequence[Execution]) -> list[Executed | Refused]:
        called.append(f"execute {len(executions)}")
        return [
            Refused("no") if each.payment.payment_id == "p-2" else Executed() for each in executions
        ]

    async def post_process(_db: Connection, executions: Sequence[Execution]) -> None:
        called.append(f"post-process {[each.payment.payment_id for each in executions]}")

    async def notify(_db: Connection, news: Sequence[object]) -> None:
        called.append(f"notify {len(news)}")

    def build(resources: Resources) -> Runtime:
        engine = BuiltInEngine(
            pool=resources.pool,
            execute=execute,
            post_process=post_process,
            notify=notify,
        )
        return build_domain(resources, engines={"builtin": engine.handle_many})

    async with opened_scene(dsn, clock, ledger, replace(payments.DOMAIN, build=build)) as scene:
        await scene.schedule("p-1", "p-2", notify={"event": True})
        await scene.run_payments()

        assert called == ["execute 2", "post-process ['p-1']", "notify 2"]
        assert (await scene.status("p-1"), await scene.status("p-2")) == ("PROCESSING", "REJECTED")


async def test_a_batch_that_the_outbox_does_not_take_at_once_is_executed_in_parts(
    dsn: str, clock: FakeClock, ledger: Ledger
) -> None:
    """A lane may claim 10,000; refused as a whole, each of them was a transaction of its own."""
    sizes: list[int] = []

    async def execute(_db: Connection, executions: Sequence[Execution]) -> list[Executed | Refused]:
        sizes.append(len(executions))
        return [Executed() for _ in executions]

    def build(resources: Resources) -> Runtime:
        engine = BuiltInEngine(
            pool=resources.pool,
            execute=execute,
            notify=send_nothing,
            transaction_max=2,
        )
        return build_domain(resources, engines={"builtin": engine.handle_many})

    async with opened_scene(dsn, clock, ledger, replace(payments.DOMAIN, build=build)) as scene:
        await scene.schedule(*(f"p-{number}" for number in range(5)))
        attempted = await scene.run_payments()

    assert sizes == [2, 2, 1]
    assert [each.outcome for each in attempted] == [DONE] * 5
    assert TRANSACTION_MAX <= BATCH_MAX


async def test_a_payment_that_the_database_refuses_does_not_hold_back_its_batch(
    scene: Scene,
) -> None:
    await scene.app.pool.execute(
        "ALTER TABLE penstock.outbox_instruction ADD CHECK (instruction_id <> 'p-2')"
    )
    await scene.schedule("p-1", "p-2", "p-3")

    await scene.run_payments()

    await assert_only_the_second_waits(scene)
    (row,) = await scene.log("p-2")
    assert (row["action"], row["status_after"]) == ("DISPATCH_FAILED", "READY")
    assert row["detail"].startswith("CheckViolationError in ")


async def raise_an_error(_db: Connection) -> None:
    raise ValueError(SECRET)


async def write_a_wrong_value(db: Connection) -> None:
    await db.execute("SELECT $1::integer", SECRET)


@pytest.mark.parametrize(
    ("fail", "error"), [(raise_an_error, "ValueError"), (write_a_wrong_value, "DataError")]
)
async def test_a_payment_whose_step_fails_does_not_hold_back_its_batch(
    dsn: str,
    *,
    clock: FakeClock,
    ledger: Ledger,
    fail: Callable[[Connection], Awaitable[None]],
    error: str,
) -> None:
    """Otherwise one of them would use up the attempts of all."""

    async def post_process(db: Connection, executions: Sequence[Execution]) -> None:
        if any(each.payment.payment_id == "p-2" for each in executions):
            await fail(db)

    build = partial(payments.build, post_process=post_process)
    with capture_logs() as lines:
        async with opened_scene(dsn, clock, ledger, replace(payments.DOMAIN, build=build)) as scene:
            await scene.schedule("p-1", "p-2", "p-3")

            await scene.run_payments()

            await assert_only_the_second_waits(scene)
            (row,) = await scene.log("p-2")
    assert (row["action"], row["status_after"]) == ("DISPATCH_FAILED", "READY")
    assert row["detail"].startswith(f"{error} in ")
    (line,) = [each for each in lines if each["event"] == "handler.failed"]
    assert (line["lane"], line["error"], line["log_level"]) == (LANE, error, "warning")
    assert SECRET not in row["detail"] + str(line)


async def test_a_payment_that_a_trigger_refuses_does_not_hold_back_its_batch(scene: Scene) -> None:
    await scene.app.pool.execute(
        """
        CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN RAISE EXCEPTION 'no'; END $$
        """
    )
    await scene.app.pool.execute(
        """
        CREATE TRIGGER refuse BEFORE INSERT ON penstock.outbox_instruction
        FOR EACH ROW WHEN (NEW.instruction_id = 'p-2') EXECUTE FUNCTION refuse()
        """
    )
    await scene.schedule("p-1", "p-2", "p-3")

    await scene.run_payments()

    await assert_only_the_second_waits(scene)


async def test_a_lock_that_cannot_be_had_uses_up_no_payment(scene: Scene) -> None:
    """A long transaction of a producer, or a lock timeout of the role, is no fault of a payment."""
    await scene.set_lane(max_attempts=1)
    await scene.app.pool.execute(
        """
        CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN RAISE lock_not_available; END $$;
        CREATE TRIGGER refuse BEFORE INSERT ON penstock.outbox_instruction
        FOR EACH ROW EXECUTE FUNCTION refuse()
        """
    )
    await scene.schedule("p-1", "p-2")

    waiting = await scene.run_payments()
    await scene.app.pool.execute("DROP TRIGGER refuse ON penstock.outbox_instruction")
    scene.clock.advance(timedelta(minutes=1))
    await scene.run_payments()

    assert [type(each.outcome).__name__ for each in waiting] == ["Retry", "Retry"]
    assert [await scene.status(each) for each in ("p-1", "p-2")] == ["PROCESSING"] * 2


async def test_an_execution_does_not_wait_for_a_lock_until_its_handler_times_out(
    dsn: str, clock: FakeClock, ledger: Ledger
) -> None:
    seen: list[str] = []

    async def post_process(db: Connection, _executions: Sequence[Execution]) -> None:
        seen.append(await db.fetchval("SHOW lock_timeout"))

    build = partial(payments.build, post_process=post_process)
    async with opened_scene(dsn, clock, ledger, replace(payments.DOMAIN, build=build)) as scene:
        await scene.schedule("p-1")
        await scene.run_payments()
        after = await scene.app.pool.fetchval("SHOW lock_timeout")

    assert (seen, after) == ([LOCK_WAIT_MAX], "0")


async def test_a_payment_that_never_reached_the_rail_is_not_in_the_sum_of_its_day(
    scene: Scene,
) -> None:
    """The same amount can be scheduled again under another id, as the runbook says."""
    await scene.app.pool.execute("INSERT INTO penstock.payment_limit VALUES ('', 'EUR', NULL, 40)")
    await scene.schedule("p-1", "p-2", "p-3")
    await scene.spoil("p-1", rail_type="Not a rail")
    await scene.spoil("p-2", amount=None)

    await scene.run_payments()

    assert [await scene.status(each) for each in ("p-1", "p-2")] == ["REJECTED"] * 2
    sums = await scene.app.pool.fetch("SELECT amount::text FROM penstock.payment_day_total")
    assert [row[0] for row in sums] == ["12.50"]


async def assert_only_the_second_waits(scene: Scene) -> None:
    statuses = [await scene.status(each) for each in ("p-1", "p-2", "p-3")]
    assert statuses == ["PROCESSING", "SCHEDULED", "PROCESSING"]
