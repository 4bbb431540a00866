"""What a rail reports by itself: signed, matching, once; also before its answer, and days later."""

import json
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from httpx import Response
from structlog.testing import capture_logs

from penstock.domains.outbox.lanes import OWNER
from penstock.domains.outbox.reconcile.results import REPORTED_REFUSED, sign
from penstock.domains.outbox.verdict import Proceed, Stop
from penstock.kernel.inspect import read_item
from penstock.kernel.item import ItemId, Snooze
from penstock.kernel.operate import release
from tests.domains.outbox.sending.ledger import Ledger, loaded
from tests.domains.outbox.sending.scene import SECRET, Outbox

SETTLED: dict[str, Any] = {"reference": "ref-i1", "status": "settled"}


async def report(outbox: Outbox, *, headers: dict[str, str] | None = None, **body: Any) -> Response:
    """Send a signed report."""
    given = {"rail_type": "loopback", "amount": "12.50", "currency": "EUR", **body}
    text = json.dumps({key: value for key, value in given.items() if value is not None}).encode()
    at = int(outbox.clock.now().timestamp())
    if headers is None:
        headers = {"Penstock-Signature": sign(SECRET, text, at=at)}
    return await outbox.stranger.post(
        "/outbox/results",
        content=text,
        headers={"Content-Type": "application/json", **headers},
    )


async def item_of(outbox: Outbox, outbox_id: UUID) -> ItemId:
    query = "SELECT item_id FROM penstock.outbox_instruction WHERE outbox_id = $1"
    return await outbox.app.pool.fetchval(query, outbox_id)


async def dispatched(outbox: Outbox) -> UUID:
    outbox_id = await outbox.send()
    await outbox.run()
    assert await outbox.states(outbox_id) == ["DISPATCHED"]
    return outbox_id


@pytest.mark.parametrize(
    ("about", "state"),
    [
        ({"status": "settled"}, "SETTLED"),
        ({"status": "returned"}, "RETURNED"),
        ({"code": "SETTLED"}, "SETTLED"),
    ],
    ids=["settled", "returned", "code of settled"],
)
async def test_a_dispatched_instruction_is_settled_or_returned_days_later(
    outbox: Outbox, about: dict[str, Any], state: str
) -> None:
    outbox_id = await dispatched(outbox)
    outbox.clock.advance(timedelta(days=9))

    response = await report(outbox, reference="ref-i1", **about)

    assert response.status_code == 200, response.text
    assert response.json()["outcome"] == "applied"
    assert await outbox.states(outbox_id) == ["DISPATCHED", state]
    assert outbox.events[-1].type == f"outbox.{state.lower()}"


async def test_a_report_names_its_instruction_by_the_ids_of_the_producer(outbox: Outbox) -> None:
    """Some rails return what they were given, and no reference of their own."""
    outbox_id = await dispatched(outbox)
    await outbox.app.pool.execute(
        "INSERT INTO penstock.outbox_idempotency"
        " (instruction_id, idempotency_key, generation, outbox_id, payload_hash)"
        " SELECT instruction_id, idempotency_key, 1, outbox_id, ''"
        " FROM penstock.outbox_instruction"
    )

    other = await report(outbox, instruction_id="i1", idempotency_key="other", status="settled")
    found = await report(outbox, instruction_id="i1", idempotency_key="i1", status="settled")

    assert other.status_code == 404
    assert found.json() == {
        "outbox_id": str(outbox_id), "status": "settled", "outcome": "applied",
    }  # fmt: skip
    assert await outbox.states(outbox_id) == ["DISPATCHED", "SETTLED"]


async def test_a_repeated_report_changes_nothing(outbox: Outbox) -> None:
    outbox_id = await dispatched(outbox)

    first = await report(outbox, outbox_id=str(outbox_id), status="settled")
    second = await report(outbox, outbox_id=str(outbox_id), status="settled")

    assert (first.json()["outcome"], second.json()["outcome"]) == ("applied", "known")
    assert await outbox.states(outbox_id) == ["DISPATCHED", "SETTLED"]


async def test_a_settled_instruction_may_be_returned_and_not_the_other_way_round(
    outbox: Outbox,
) -> None:
    outbox_id = await dispatched(outbox)

    await report(outbox, outbox_id=str(outbox_id), status="settled")
    await report(outbox, outbox_id=str(outbox_id), status="returned")
    assert await outbox.states(outbox_id) == ["DISPATCHED", "SETTLED", "RETURNED"]

    other = await outbox.send("i2")
    await outbox.run()
    await report(outbox, outbox_id=str(other), status="returned")
    await report(outbox, outbox_id=str(other), status="settled")
    assert await outbox.states(other) == ["DISPATCHED", "RETURNED"]


async def test_a_code_that_this_process_cannot_classify_has_to_be_reported_again(
    outbox: Outbox,
) -> None:
    """Answered with 200, the rail would not report it to a process that has the rail."""
    outbox_id = await dispatched(outbox)
    outbox.rails.rail = None

    response = await report(outbox, outbox_id=str(outbox_id), code="RETURNED")

    assert response.status_code == 503
    assert await outbox.states(outbox_id) == ["DISPATCHED"]


async def test_an_unknown_one_that_is_reported_as_paid_is_polled_until_it_is_settled(
    outbox: Outbox, ledger: Ledger
) -> None:
    """A rail that settles later may return it, and not report that."""
    outbox.rails.rail = loaded(ledger.port, is_asynchronous=True, can_query=True)
    ledger.orders += ["lose"]
    outbox_id = await outbox.send()
    await outbox.run()
    await outbox.sweep()

    await report(outbox, outbox_id=str(outbox_id), status="paid")

    assert (await outbox.states(outbox_id))[-1] == "DISPATCHED"
    left = await outbox.app.pool.fetch("SELECT purpose FROM penstock.outbox_lookup")
    assert [row["purpose"] for row in left] == ["settlement"]


@pytest.mark.parametrize("about", [{"status": "refused"}, {"code": "RETURNED"}])
@pytest.mark.parametrize(
    ("order", "is_asynchronous"),
    [("accept", False), ("pay", True)],
    ids=["pending", "asynchronous"],
)
async def test_an_accepted_instruction_that_is_refused_later_is_returned(
    outbox: Outbox, ledger: Ledger, *, about: dict[str, Any], order: str, is_asynchronous: bool
) -> None:
    outbox.rails.rail = loaded(ledger.port, is_asynchronous=is_asynchronous)
    ledger.orders += [order]
    outbox_id = await dispatched(outbox)

    response = await report(outbox, outbox_id=str(outbox_id), **about)

    assert response.json()["outcome"] == "applied"
    assert await outbox.states(outbox_id) == ["DISPATCHED", "RETURNED"]


REFUSED: dict[str, Any] = {"status": "refused"}
REJECTED: dict[str, Any] = {"code": "REJECTED"}


@pytest.mark.parametrize(
    ("order", "before", "about"),
    [
        ("pay", [], REFUSED),
        ("pay", [], REJECTED),
        ("accept", ["paid"], REFUSED),
        ("accept", ["paid"], REJECTED),
        ("pay", ["settled"], REFUSED),
        ("accept", ["settled"], REFUSED),
    ],
    ids=["paid", "paid, by code", "accepted and reported as paid", "the same, by code", "settled",
         "accepted and settled"],
)  # fmt: skip
async def test_a_refusal_of_a_paid_instruction_changes_nothing(
    outbox: Outbox, ledger: Ledger, *, about: dict[str, Any], order: str, before: list[str]
) -> None:
    """As RETURNED it could be sent under another key, which would pay it twice."""
    ledger.orders += [order]
    outbox_id = await dispatched(outbox)
    for status in before:
        await report(outbox, outbox_id=str(outbox_id), status=status)
    states = await outbox.states(outbox_id)

    with capture_logs() as lines:
        await report(outbox, outbox_id=str(outbox_id), **about)
        await report(outbox, outbox_id=str(outbox_id), **about)

    assert await outbox.states(outbox_id) == states
    logged = [line for line in lines if line["event"] == "instruction.contradicted"]
    assert [(line["log_level"], line["outbox_id"]) for line in logged] == [
        ("error", str(outbox_id))
    ]
    await report(outbox, outbox_id=str(outbox_id), status="returned")
    assert await outbox.states(outbox_id) == [*states, "RETURNED"]


async def test_a_refusal_waits_for_a_process_that_has_the_rail(
    outbox: Outbox, ledger: Ledger
) -> None:
    """Without the rail nobody knows whether its answer said paid or accepted."""
    ledger.orders += ["accept"]
    outbox_id = await dispatched(outbox)
    rail, outbox.rails.rail = outbox.rails.rail, None

    response = await report(outbox, outbox_id=str(outbox_id), status="refused")
    assert response.json()["outcome"] == "recorded"
    assert await outbox.states(outbox_id) == ["DISPATCHED"]

    outbox.rails.rail = rail
    await outbox.reconcile(minutes=1)
    assert await outbox.states(outbox_id) == ["DISPATCHED", "RETURNED"]


@pytest.mark.parametrize(
    ("status", "states"),
    [
        ("paid", ["DISPATCHED"]),
        ("settled", ["DISPATCHED", "SETTLED"]),
        ("returned", ["DISPATCHED", "RETURNED"]),
    ],
)
async def test_an_instruction_that_was_never_tried_and_is_reported_as_paid_is_not_sent(
    outbox: Outbox, ledger: Ledger, *, status: str, states: list[str]
) -> None:
    """The database was restored from a backup that is older than the payment."""
    outbox.rails.rail = loaded(ledger.port)
    outbox.control.verdict = Stop(Snooze(timedelta(seconds=5), "the rail is stopped"), "STOPPED")
    outbox_id, other = await outbox.send(), await outbox.send("i2", participant="p2")
    await outbox.run()

    response = await report(outbox, outbox_id=str(outbox_id), status=status, reference="r7")
    assert response.json()["outcome"] == "recorded"
    outbox.control.verdict = Proceed()
    await outbox.run_after(minutes=1)
    await outbox.reconcile(minutes=1)

    assert ledger.calls == [("send", "i2")]
    assert await outbox.states(outbox_id) == states
    assert (await outbox.rows(outbox_id))[0]["rail_reference"] == "r7"
    assert await outbox.states(other) == ["DISPATCHED"]


async def test_a_payment_that_is_reported_between_load_and_call_is_seen_by_the_last_check(
    outbox: Outbox, ledger: Ledger
) -> None:
    """A batch is loaded up to seconds before the call of its last instruction."""
    outbox_id = await outbox.send()
    outbox.control.meanwhile = partial(
        report, outbox, outbox_id=str(outbox_id), status="paid", reference="r7"
    )

    (stopped,) = await outbox.run()
    assert isinstance(stopped.outcome, Snooze)
    assert stopped.outcome.reason == "the rail reports it as paid"
    await outbox.run_after(minutes=1)

    assert ledger.calls == []
    assert await outbox.states(outbox_id) == ["DISPATCHED"]


async def test_a_refusal_holds_an_instruction_that_was_never_tried(
    outbox: Outbox, ledger: Ledger
) -> None:
    """The rail knows of a call that the database does not; a person has to find out which."""
    outbox_id = await outbox.send()

    response = await report(outbox, outbox_id=str(outbox_id), status="refused")
    await outbox.run()

    assert response.json()["outcome"] == "applied"
    assert ledger.calls == []
    assert await outbox.item_state(outbox_id) == "held"
    item = await read_item(outbox.app.pool, await item_of(outbox, outbox_id))
    assert item is not None
    assert item.reason == REPORTED_REFUSED

    async with outbox.app.pool.acquire() as db:
        await release(db, item.id, who="test", reason="not ours", owner=OWNER)
    await outbox.run_after(minutes=1)
    assert await outbox.states(outbox_id) == ["DISPATCHED"], "a person may release it"


async def test_a_refusal_of_an_instruction_behind_the_head_holds_it_in_its_turn(
    outbox: Outbox, ledger: Ledger
) -> None:
    outbox_id = (await outbox.send(), await outbox.send("i2"))[1]

    response = await report(outbox, outbox_id=str(outbox_id), status="refused")
    await outbox.run()
    assert response.json()["outcome"] == "recorded"
    assert ledger.calls == [("send", "i1")]

    await outbox.reconcile(minutes=1)
    assert await outbox.item_state(outbox_id) == "held"


async def test_a_settlement_after_a_refusal_is_archived_and_contradicts_it(
    outbox: Outbox, ledger: Ledger
) -> None:
    """As RETURNED it could be sent under another key, which would pay it twice."""
    ledger.orders += ["accept"]
    outbox_id = await dispatched(outbox)
    await report(outbox, outbox_id=str(outbox_id), status="refused")

    with capture_logs() as lines:
        await report(outbox, outbox_id=str(outbox_id), status="settled")

    rows = await outbox.rows(outbox_id)
    assert [row["state"] for row in rows] == ["DISPATCHED", "RETURNED", "SETTLED"]
    assert rows[2]["error_code"] == "AFTER_REFUSAL"
    assert "instruction.contradicted" in [line["event"] for line in lines]


async def test_an_instruction_that_was_settled_after_its_refusal_is_not_paid_under_another_key(
    outbox: Outbox, ledger: Ledger
) -> None:
    """The producer saw that it was returned, and the report came before the other key was sent."""
    ledger.orders += ["accept"]
    outbox_id = await outbox.send()
    await outbox.run()
    await report(outbox, outbox_id=str(outbox_id), status="refused")
    other = await outbox.send("i1-again")
    await outbox.app.pool.execute(
        "INSERT INTO penstock.outbox_idempotency VALUES"
        " ('i1', 'i1', 1, $1, ''), ('i1', 'other', 2, $2, '')",
        outbox_id,
        other,
    )

    await report(outbox, outbox_id=str(outbox_id), status="settled")
    await outbox.run()

    assert await outbox.states(outbox_id) == ["DISPATCHED", "RETURNED", "SETTLED"]
    assert await outbox.states(other) == []
    assert ledger.count("send") == 1


@pytest.mark.parametrize(
    ("status", "states", "item"),
    [
        ("paid", ["UNKNOWN", "DISPATCHED"], "done"),
        ("settled", ["UNKNOWN", "DISPATCHED", "SETTLED"], "done"),
        ("returned", ["UNKNOWN", "DISPATCHED", "RETURNED"], "done"),
        ("refused", ["UNKNOWN", "FAILED"], "dead"),
    ],
)
async def test_a_report_resolves_an_instruction_that_is_held(
    outbox: Outbox, ledger: Ledger, *, status: str, states: list[str], item: str
) -> None:
    """The rail answers no queries, so nothing else could."""
    outbox.rails.rail = loaded(ledger.port)
    ledger.orders += ["lose"]
    outbox_id = await outbox.send()
    await outbox.run()

    response = await report(outbox, outbox_id=str(outbox_id), status=status, reference="r7")

    assert response.json()["outcome"] == "applied"
    assert await outbox.states(outbox_id) == states
    assert await outbox.item_state(outbox_id) == item
    assert (await outbox.rows(outbox_id))[1]["rail_reference"] == "r7"


async def test_a_report_that_comes_before_the_answer_is_applied_after_it(
    outbox: Outbox, ledger: Ledger
) -> None:
    outbox_id = await outbox.send()
    await outbox.lose()

    response = await report(outbox, outbox_id=str(outbox_id), status="settled", reference="r7")
    assert response.json()["outcome"] == "recorded"
    await outbox.sweep(seconds=65)
    await outbox.reconcile(seconds=1)
    await outbox.reconcile(minutes=1)

    assert await outbox.states(outbox_id) == ["UNKNOWN", "DISPATCHED", "SETTLED"]
    assert ledger.bookings == []
    assert ledger.calls == [], "what is reported is not asked"


async def test_an_instruction_that_is_reported_as_paid_is_not_sent_again(
    outbox: Outbox, ledger: Ledger
) -> None:
    """The rail said BUSY and paid all the same."""
    ledger.orders += ["BUSY"]
    outbox_id = await outbox.send()
    await outbox.run()

    await report(outbox, outbox_id=str(outbox_id), status="paid", reference="r7")
    await outbox.run_after(hours=1)

    assert await outbox.states(outbox_id) == ["RETRYABLE", "DISPATCHED"]
    assert ledger.count("send") == 1


async def test_a_payment_that_is_reported_after_a_failure_is_archived(
    outbox: Outbox, ledger: Ledger
) -> None:
    """To send it under another key would pay twice: the archive must no longer say FAILED."""
    ledger.orders += ["REJECTED"]
    outbox_id = await outbox.send()
    await outbox.run()

    await report(outbox, outbox_id=str(outbox_id), status="paid", reference="r7")

    rows = await outbox.rows(outbox_id)
    assert [row["state"] for row in rows] == ["FAILED", "DISPATCHED"]
    assert rows[1]["error_code"] == "AFTER_FAILURE"


@pytest.mark.parametrize(
    "about",
    [{"amount": "12.51"}, {"currency": "USD"}],
    ids=["amount", "currency"],
)
async def test_another_amount_or_currency_is_refused(outbox: Outbox, about: dict[str, Any]) -> None:
    outbox_id = await dispatched(outbox)

    response = await report(outbox, outbox_id=str(outbox_id), status="settled", **about)

    assert response.status_code == 409
    assert await outbox.states(outbox_id) == ["DISPATCHED"]


async def test_a_report_without_a_valid_signature_is_refused(outbox: Outbox) -> None:
    outbox_id = await dispatched(outbox)
    now = int(outbox.clock.now().timestamp())
    body = {"outbox_id": str(outbox_id), "status": "settled"}
    text = json.dumps(
        {"rail_type": "loopback", "amount": "12.50", "currency": "EUR", **body}
    ).encode()
    wrong = [
        {},
        {"Penstock-Signature": "v1=00"},
        {"Penstock-Signature": sign("another secret", text, at=now)},
        {"Penstock-Signature": sign(SECRET, text + b" ", at=now)},
        {"Penstock-Signature": sign(SECRET, text, at=now - 301)},
        {"Penstock-Signature": sign(SECRET, text, at=now + 301)},
    ]

    statuses = [(await report(outbox, headers=each, **body)).status_code for each in wrong]

    assert statuses == [401] * len(wrong)
    assert await outbox.states(outbox_id) == ["DISPATCHED"]


@pytest.mark.parametrize(
    ("about", "status"),
    [
        ({"status": "settled"}, 400),
        ({"status": "settled", "instruction_id": "i1"}, 400),
        ({"reference": "nobody knows"}, 404),
        ({"reference": "ref-i1"}, 400),
        ({"reference": "ref-i1", "status": "lost"}, 400),
        ({"reference": "ref-i1", "status": "settled", "rail_type": "other"}, 401),
        ({"reference": "ref-i1", "status": "settled", "rail_type": "other\x00"}, 400),
        ({"reference": "ref-i1\x00", "status": "settled"}, 400),
        ({"instruction_id": "i1\x00", "idempotency_key": "i1", "status": "settled"}, 400),
        ({**SETTLED, "occurred_at": "9999-12-31T23:59:59-12:00"}, 400),
        ({**SETTLED, "occurred_at": "1969-12-31T23:59:59Z"}, 400),
    ],
    ids=[
        "no id", "half an id", "unknown", "no status", "bad status", "rail without a secret",
        "NUL in a rail", "NUL in a reference", "NUL in an id", "far future", "far past",
    ],
)  # fmt: skip
async def test_a_report_that_is_not_clear_is_refused(
    outbox: Outbox, about: dict[str, Any], status: int
) -> None:
    await dispatched(outbox)

    response = await report(outbox, **about)

    assert response.status_code == status, response.text


@pytest.mark.parametrize(
    ("about", "field"),
    [
        ({"amount": None}, "amount"),
        ({"amount": 12.5}, "amount"),
        ({"amount": "much"}, "amount"),
        ({"amount": "NaN"}, "amount"),
        ({"status": "lost"}, "status"),
        ({"reference": ""}, "reference"),
        ({"occurred_at": "yesterday"}, "occurred_at"),
    ],
    ids=["no amount", "float", "word", "NaN", "status", "reference", "instant"],
)
async def test_the_field_that_is_wrong_in_a_report_is_named(
    outbox: Outbox, about: dict[str, Any], field: str
) -> None:
    """A float may be rounded, and another amount is one that was not paid."""
    outbox_id = await dispatched(outbox)

    response = await report(outbox, **(SETTLED | about))

    assert response.status_code == 400, response.text
    assert response.json()["field"] == field
    assert await outbox.states(outbox_id) == ["DISPATCHED"]


async def test_an_integer_amount_is_accepted(outbox: Outbox) -> None:
    outbox_id = await outbox.send(amount="12.00")
    await outbox.run()

    response = await report(outbox, **SETTLED, amount=12)

    assert response.status_code == 200, response.text
    assert await outbox.states(outbox_id) == ["DISPATCHED", "SETTLED"]


async def test_the_code_of_a_report_with_a_status_is_archived_and_decides_nothing(
    outbox: Outbox,
) -> None:
    """A return has a status, and a code with its reason."""
    outbox_id = await dispatched(outbox)

    response = await report(outbox, reference="ref-i1", status="returned", code="BUSY")

    assert response.status_code == 200, response.text
    row = (await outbox.rows(outbox_id))[-1]
    assert (row["state"], row["rail_code"]) == ("RETURNED", "BUSY")


async def test_a_report_whose_ids_do_not_belong_together_is_refused(outbox: Outbox) -> None:
    outbox_id = await dispatched(outbox)

    response = await report(
        outbox,
        outbox_id=str(outbox_id),
        instruction_id="i2",
        idempotency_key="i2",
        status="settled",
    )

    assert response.status_code == 404
    assert await outbox.states(outbox_id) == ["DISPATCHED"]


async def test_a_code_that_decides_nothing_changes_nothing(outbox: Outbox) -> None:
    outbox_id = await dispatched(outbox)

    response = await report(outbox, reference="ref-i1", code="ACCEPTED")

    assert response.json() == {"outbox_id": str(outbox_id), "status": None, "outcome": "known"}
    assert await outbox.states(outbox_id) == ["DISPATCHED"]
