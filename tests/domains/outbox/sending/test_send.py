"""One attempt of an instruction: what is sent, what is not, and what the archive says then."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from penstock.domains.outbox.instruction import Instruction
from penstock.domains.outbox.rails.rail import RailProperties, SendResult
from penstock.domains.outbox.verdict import Stop
from penstock.kernel.item import Dead, Done, Hold, Retry, Snooze
from penstock.kernel.operate import retry
from tests.domains.outbox.sending.ledger import Ledger, LoopbackRail, loaded
from tests.domains.outbox.sending.scene import Outbox


@pytest.mark.covers("E39", "E42", "E64")
async def test_a_paid_instruction_is_dispatched_and_never_tried_again(
    outbox: Outbox, ledger: Ledger
) -> None:
    outbox_id = await outbox.send()

    (attempted,) = await outbox.run()

    assert isinstance(attempted.outcome, Done)
    assert await outbox.item_state(outbox_id) == "done"
    (row,) = await outbox.rows(outbox_id)
    assert (row["state"], row["rail_code"], row["rail_reference"]) == (
        "DISPATCHED", "PAID", "ref-i1",
    )  # fmt: skip
    assert row["completed_at"] >= row["claimed_at"]
    assert row["latency_ms"] is not None
    assert ledger.bookings == ["i1"]
    assert [each.type for each in outbox.events] == ["outbox.dispatched"]
    assert not outbox.events[0].is_pending


@pytest.mark.parametrize(
    ("order", "promise"),
    [
        ("accept", {}),
        ("accept", {"can_query": True}),
        ("pay", {"is_asynchronous": True}),
        ("pay", {"is_asynchronous": True, "can_query": True}),
    ],
    ids=["accepted", "accepted, can be asked", "asynchronous", "asynchronous, can be asked"],
)
async def test_an_event_says_that_the_rail_has_only_accepted_the_instruction(
    outbox: Outbox, ledger: Ledger, *, order: str, promise: dict[str, Any]
) -> None:
    """Whoever waits for the money must not take it for paid."""
    outbox.rails.rail = loaded(ledger.port, **promise)
    ledger.orders += [order]
    await outbox.send()

    await outbox.run()

    (event,) = outbox.events
    assert (event.type, event.is_pending) == ("outbox.dispatched", True)


@pytest.mark.covers("E40", "E65", "E19", "E20")
async def test_a_retryable_code_is_tried_again_later_after_a_query(
    outbox: Outbox, ledger: Ledger
) -> None:
    ledger.orders += ["BUSY"]
    outbox_id = await outbox.send()

    (first,) = await outbox.run()
    assert await outbox.run() == []
    (second,) = await outbox.run_after(hours=1)

    assert isinstance(first.outcome, Retry)
    assert isinstance(second.outcome, Done)
    assert await outbox.states(outbox_id) == ["RETRYABLE", "DISPATCHED"]
    assert [kind for kind, _ in ledger.calls] == ["send", "query", "send"]
    assert [row["attempt_no"] for row in await outbox.rows(outbox_id)] == [1, 2]


async def test_a_retryable_code_after_the_last_attempt_ends_as_failed(
    outbox: Outbox, ledger: Ledger
) -> None:
    ledger.orders += ["BUSY"] * 5
    outbox_id = await outbox.send()

    for _ in range(5):
        await outbox.run_after(hours=1)

    assert await outbox.states(outbox_id) == ["RETRYABLE"] * 4 + ["FAILED"]
    assert await outbox.item_state(outbox_id) == "dead"
    assert ledger.bookings == []


@pytest.mark.covers("E41")
async def test_a_terminal_code_ends_as_failed_and_blocks_the_participant(
    outbox: Outbox, ledger: Ledger
) -> None:
    ledger.orders += ["REJECTED"]
    first = await outbox.send("i1")
    second = await outbox.send("i2")

    (attempted,) = await outbox.run()

    assert isinstance(attempted.outcome, Dead)
    (row,) = await outbox.rows(first)
    assert (row["state"], row["error_code"], row["rail_code"]) == (
        "FAILED", "TERMINAL", "REJECTED",
    )  # fmt: skip
    assert await outbox.item_state(second) == "parked"


@pytest.mark.covers("E38")
@pytest.mark.parametrize("code", ["IN_PROGRESS", "NEVER_HEARD_OF"])
async def test_a_code_that_is_unknown_or_about_a_key_holds_the_instruction(
    outbox: Outbox, ledger: Ledger, code: str
) -> None:
    """An idempotency error of a rail says that a call with the key exists, and not how it ended."""
    ledger.orders += [code]
    outbox_id = await outbox.send()

    (attempted,) = await outbox.run()

    assert isinstance(attempted.outcome, Hold)
    (row,) = await outbox.rows(outbox_id)
    assert (row["state"], row["error_code"], row["rail_code"]) == ("UNKNOWN", "UNKNOWN_CODE", code)
    assert await outbox.item_state(outbox_id) == "held"


async def test_a_lost_reply_is_unknown_and_is_not_sent_again(
    outbox: Outbox, ledger: Ledger
) -> None:
    ledger.orders += ["lose"]
    outbox_id = await outbox.send()

    await outbox.run()
    assert await outbox.run_after(hours=1) == []

    assert await outbox.states(outbox_id) == ["UNKNOWN"]
    assert ledger.bookings == ["i1"]


@pytest.mark.covers("E36")
async def test_a_call_beyond_the_timeout_of_its_rail_is_unknown(
    outbox: Outbox, ledger: Ledger
) -> None:
    ledger.orders += ["wait"]
    outbox.rails.rail = loaded(ledger.port, timeout=timedelta(milliseconds=50))
    outbox_id = await outbox.send()

    await outbox.run()
    ledger.resume.set()

    (row,) = await outbox.rows(outbox_id)
    assert (row["state"], row["error_code"]) == ("UNKNOWN", "NO_ANSWER")


async def test_an_adapter_that_ignores_its_timeout_is_cancelled(
    outbox: Outbox, ledger: Ledger
) -> None:
    """A plug-in must not keep an instruction in flight for ever."""

    class Stubborn(LoopbackRail):
        async def send(self, instruction: Instruction, *, timeout: timedelta) -> SendResult:
            return await LoopbackRail.send(self, instruction, timeout=100 * timeout)

    ledger.orders += ["wait"]
    rail = loaded(ledger.port, timeout=timedelta(milliseconds=50))
    stubborn = Stubborn(port=ledger.port, properties=RailProperties())
    outbox.rails.rail = type(rail)(
        rail_type="loopback",
        rail=stubborn,
        codes=rail.codes,
        timeout=rail.timeout,
        concurrency_max=1,
    )
    outbox_id = await outbox.send()

    await outbox.run()
    ledger.resume.set()

    (row,) = await outbox.rows(outbox_id)
    assert (row["state"], row["error_code"]) == ("UNKNOWN", "NO_ANSWER")


async def test_an_instruction_that_did_not_leave_is_retried(outbox: Outbox, ledger: Ledger) -> None:
    outbox.rails.rail = loaded(1)
    outbox_id = await outbox.send()
    await outbox.run()

    outbox.rails.rail = loaded(ledger.port)
    await outbox.run_after(hours=1)

    assert await outbox.states(outbox_id) == ["RETRYABLE", "DISPATCHED"]
    assert ledger.bookings == ["i1"]


@pytest.mark.covers("E35")
async def test_an_invalid_instruction_fails_without_a_call(outbox: Outbox, ledger: Ledger) -> None:
    outbox.invalid.append("i1")
    outbox_id = await outbox.send()

    await outbox.run()

    (row,) = await outbox.rows(outbox_id)
    assert (row["state"], row["error_code"]) == ("FAILED", "INVALID")
    assert ledger.calls == []


async def test_an_invalid_instruction_that_may_be_paid_does_not_fail(
    outbox: Outbox, ledger: Ledger
) -> None:
    """A rule that was added after the call must not turn a payment into a failure."""
    outbox.rails.rail = loaded(ledger.port, key_valid_for=timedelta(days=1))
    ledger.orders += ["lose"]
    outbox_id = await outbox.send()
    await outbox.run()
    outbox.invalid.append("i1")
    await outbox.reconcile(seconds=1)

    await outbox.run()

    assert await outbox.states(outbox_id) == ["UNKNOWN", "ZOMBIE_REQUEUE", "UNKNOWN"]
    assert ledger.bookings == ["i1"]


@pytest.mark.parametrize(
    ("stop", "item", "states"),
    [
        (Stop(Hold("awaits approval"), "X"), "held", []),
        (Stop(Snooze(timedelta(minutes=1)), "X"), "scheduled", []),
        (Stop(Dead("over the limit"), "OVER_LIMIT"), "dead", ["FAILED"]),
    ],
    ids=["hold", "snooze", "dead"],
)
async def test_a_control_stops_an_instruction_before_the_call(
    outbox: Outbox, ledger: Ledger, *, stop: Stop, item: str, states: list[str]
) -> None:
    outbox.control.verdict = stop
    outbox_id = await outbox.send()

    await outbox.run()

    assert ledger.calls == []
    assert await outbox.item_state(outbox_id) == item
    assert await outbox.states(outbox_id) == states


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO penstock.outbox_switch VALUES ('all', '*', 'incident', 'ann', now())",
        "INSERT INTO penstock.outbox_switch VALUES ('rail', 'loopback', 'incident', 'ann', now())",
        "INSERT INTO penstock.outbox_switch VALUES ('participant', 'p1', 'x', 'ann', now())",
        "INSERT INTO penstock.outbox_suspension VALUES ('p1', 'fraud', 'ann', now())",
    ],
    ids=["all", "rail", "participant", "suspension"],
)
async def test_a_switch_that_is_turned_after_the_claim_stops_the_call(
    outbox: Outbox, ledger: Ledger, sql: str
) -> None:
    """The control has let it pass; the rows are read again right before the call."""
    await outbox.app.pool.execute(sql)  # pyright: ignore[reportArgumentType]
    outbox_id = await outbox.send()

    (attempted,) = await outbox.run()

    assert isinstance(attempted.outcome, Snooze)
    assert ledger.calls == []
    assert await outbox.states(outbox_id) == []


async def test_switches_of_others_stop_nothing(outbox: Outbox, ledger: Ledger) -> None:
    await outbox.app.pool.execute(
        """
        INSERT INTO penstock.outbox_switch
        VALUES ('rail', 'other', 'x', 'ann', now()), ('participant', 'p2', 'x', 'ann', now())
        """
    )
    await outbox.send()

    await outbox.run()

    assert ledger.bookings == ["i1"]


async def test_without_its_rail_an_instruction_waits(outbox: Outbox) -> None:
    outbox.rails.rail = None
    await outbox.send()

    (attempted,) = await outbox.run()

    assert isinstance(attempted.outcome, Snooze)


async def test_another_amount_in_the_answer_is_unknown(outbox: Outbox, ledger: Ledger) -> None:
    ledger.amount = "99.00"
    outbox_id = await outbox.send()

    await outbox.run()

    (row,) = await outbox.rows(outbox_id)
    assert (row["state"], row["error_code"]) == ("UNKNOWN", "AMOUNT_MISMATCH")


async def test_a_failed_instruction_that_a_person_releases_is_sent_again(
    outbox: Outbox, ledger: Ledger
) -> None:
    """The rail still reports the old refusal, which nobody doubts."""
    ledger.orders += ["REJECTED"]
    outbox_id = await outbox.send()
    await outbox.run()
    item_id = await outbox.app.pool.fetchval("SELECT id FROM penstock.dead")
    async with outbox.app.pool.acquire() as db:
        await retry(db, item_id, who="ann", owner="outbox", now=outbox.clock.now())

    await outbox.run()

    assert await outbox.states(outbox_id) == ["FAILED", "DISPATCHED"]
    assert [kind for kind, _ in ledger.calls] == ["send", "query", "send"]


@pytest.mark.parametrize(
    ("order", "was_sent"),
    [
        ("BUSY", True),
        ("REJECTED", True),
        ("IN_PROGRESS", True),
        ("lose", True),
        ("unreachable", False),
        ("invalid", False),
        ("over the limit", False),
        ("stopped", False),
    ],
)
async def test_only_an_instruction_whose_rail_may_have_been_called_counts_as_sent(
    outbox: Outbox, ledger: Ledger, *, order: str, was_sent: bool
) -> None:
    """What was sent waits for an approval when a limit is lowered; what was not has to fail."""
    match order:
        case "unreachable":
            outbox.rails.rail = loaded(1)
        case "invalid":
            outbox.invalid.append("i1")
        case "over the limit":
            outbox.control.verdict = Stop(Dead("over the limit"), "OVER_LIMIT")
        case "stopped":
            outbox.control.verdict = Stop(Snooze(timedelta(minutes=1)), "STOPPED")
        case _:
            ledger.orders += [order]
    outbox_id = await outbox.send()

    await outbox.run()

    assert await is_sent(outbox, outbox_id) is was_sent


async def test_a_lost_attempt_counts_as_sent(outbox: Outbox) -> None:
    outbox_id = await outbox.send()
    await outbox.lose()
    await outbox.sweep(minutes=2)

    assert await is_sent(outbox, outbox_id) is True


@pytest.mark.parametrize(
    ("given", "was_sent"), [("attempts", False), ("nothing", True)], ids=["known", "unknown"]
)
async def test_what_a_dropped_month_hides_counts_as_sent(
    outbox: Outbox, *, given: str, was_sent: bool
) -> None:
    """Only the attempts still show then that there was no call."""
    outbox.invalid.append("i1")
    outbox_id = await outbox.send()
    await outbox.run()
    await outbox.app.pool.execute(
        """
        INSERT INTO penstock.outbox_kept_state (
            outbox_id, states, is_contradicted, state, attempt_no, last_at)
        VALUES ($1, '{FAILED}', false, 'FAILED', 1, now())
        """,
        outbox_id,
    )
    if given == "nothing":
        await outbox.app.pool.execute("DELETE FROM penstock.attempt")

    assert await is_sent(outbox, outbox_id) is was_sent


async def is_sent(outbox: Outbox, outbox_id: UUID) -> bool:
    """Return whether the rail may have been called, as limits see it."""
    return await outbox.app.pool.fetchval(
        """
        SELECT past.was_sent FROM penstock.outbox_instruction AS i
        CROSS JOIN LATERAL penstock.outbox_past_calls(i.outbox_id, i.item_id) AS past
        WHERE i.outbox_id = $1
        """,
        outbox_id,
    )
