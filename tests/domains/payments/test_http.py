"""Payments over REST: 202 with the instant, one result for each of many, and what is refused."""

import json
from collections.abc import AsyncIterator
from typing import Any, Literal

import msgspec
import pytest
from httpx import Response

from penstock.contract.ndjson import NDJSON
from penstock.domains.payments.batch import PAYMENT_BYTES_MAX
from penstock.domains.payments.lanes import LANE
from penstock.kernel.claim import Cursor, Lease, claim
from penstock.kernel.item import ItemId
from penstock.kernel.lane import read_lane
from penstock.kernel.operate import hold, resolve
from penstock.testing import FakeClock, run_due
from tests.api.scene import Callers, problem
from tests.domains.payments.scene import AT_FOUR, Scene, a_body

FOUR = "2031-01-31T16:00:00Z"


def body_of(answer: Response, status: int = 200) -> Any:
    assert answer.status_code == status, answer.text
    return answer.json()


# ------------------------------------------------------------------------------------ schedule


async def test_a_scheduled_payment_is_answered_with_202_and_its_instant(scene: Scene) -> None:
    answer = await scene.post()

    assert body_of(answer, 202) == {
        "payment_id": "p-1",
        "status": "SCHEDULED",
        "scheduled_at": FOUR,
    }
    assert "Idempotency-Hit" not in answer.headers
    assert [row["created_by"].partition(":")[0] for row in await scene.rows()] == ["key"]


@pytest.mark.covers("A95")
async def test_a_repeat_has_the_same_answer_and_other_content_is_a_conflict(scene: Scene) -> None:
    first = body_of(await scene.post(), 202)

    again = await scene.post(amount="12.5")
    other = await scene.post(amount="12.51")

    assert body_of(again, 202) == first
    assert again.headers["Idempotency-Hit"] == "true"
    refused = problem(other, 409, "payment-conflict")
    assert refused["stored_hash"] != refused["given_hash"]
    assert len(await scene.items()) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"amount": 12.5},
        {"amount": "12.505"},
        {"debtor": {"name": "Ada", "iban": "DE00"}},
        {"execute_at": "tomorrow"},
        {"colour": "red"},
        {"notify": {"sms": "1"}},
        {"notify": {"mail": f"a@{'b' * 64}.org"}},
        {"payment_id": "a/b"},
        {"payment_id": "stream"},
        {"payment_id": "p-1\r\nBcc: eve@example.org"},
        {"payment_id": "p-1\x7f"},
        {"payment_id": "p-1\u2028"},
        {"payment_id": "\U0001f600" * 226},
    ],
    ids=str,
)
async def test_bad_input_is_refused_with_400(scene: Scene, change: dict[str, Any]) -> None:
    answer = await scene.post(**change)

    assert answer.status_code == 400, answer.text
    assert await scene.rows() == []


async def test_a_key_that_is_given_twice_is_refused(scene: Scene) -> None:
    """Readers differ in which of two amounts they take."""
    body = json.dumps(a_body("p-1")).replace('"amount"', '"amount": "1.00", "amount"')
    headers = {"Content-Type": "application/json"}

    one = await scene.client.post("/payments", content=body, headers=headers)
    many = await scene.client.post("/payments/batch", content=f"[{body}]", headers=headers)

    problem(one, 400, "invalid-input")
    assert [each["outcome"] for each in many.json()] == ["invalid"]
    assert await scene.rows() == []


async def test_an_unknown_item_type_is_not_found(scene: Scene) -> None:
    problem(await scene.post(item_type="INVOICE"), 404, "unknown-item-type")


async def test_each_call_needs_its_scope(callers: Callers) -> None:
    scheduled = await callers.producer.post("/payments", json=a_body())
    read = await callers.producer.get("/payments/p-1")
    cancelled = await callers.producer.post("/payments/p-1/cancel")
    anonymous = await callers.stranger.get("/payments")

    codes = [each.status_code for each in (scheduled, read, cancelled, anonymous)]
    assert codes == [202, 403, 403, 401]


# ---------------------------------------------------------------------------------------- many


def outcomes(results: list[Any]) -> list[tuple[int, str]]:
    return [(each["index"], each["outcome"]) for each in results]


async def test_a_batch_has_one_result_for_each(scene: Scene) -> None:
    given = [
        a_body("p-1"),
        a_body("p-2", amount="0"),
        a_body("p-1", amount="1"),
        {"payment_id": "p-3"},
        a_body("p-4", item_type="INVOICE"),
        a_body("p-1"),
        a_body("p-5"),
    ]

    results = body_of(await scene.client.post("/payments/batch", json=given))

    assert outcomes(results) == [
        (0, "scheduled"), (1, "invalid"), (2, "conflict"), (3, "invalid"), (4, "refused"),
        (5, "existing"), (6, "scheduled"),
    ]  # fmt: skip
    assert results[0]["scheduled_at"] == FOUR
    assert results[4]["code"] == "unknown-item-type"
    assert [row["payment_id"] for row in await scene.rows()] == ["p-1", "p-5"]


@pytest.mark.parametrize("way", ["batch", "stream"])
async def test_a_result_names_its_payment_wherever_that_can_be_read(scene: Scene, way: str) -> None:
    """A caller who keeps no positions finds out which of its payments was refused."""
    await scene.app.pool.execute("INSERT INTO penstock.payment_limit VALUES ('', 'EUR', 20, NULL)")
    text = json.dumps(a_body("p-6"))
    lines = [
        json.dumps(a_body("p-1", amount="0")),
        json.dumps({"payment_id": "p-2", "colour": "red"}),
        json.dumps(a_body("p-3", item_type="INVOICE")),
        json.dumps(a_body("p-4", amount="21")),
        json.dumps(a_body("p-5", amount=12.5)),
        text.replace('"amount"', '"amount": "1.00", "amount"'),
        text.replace('"payment_id"', '"payment_id": "p-7", "payment_id"'),
        json.dumps(a_body("x" * 256)),
        json.dumps(a_body() | {"payment_id": 7}),
        json.dumps("p-8"),
        '{"payment_id": "p-9", "colour": "\udcff"}',
    ]

    results = await sent_as(way, scene, lines)

    assert [each.get("payment_id") for each in results] == [
        "p-1", "p-2", "p-3", "p-4", "p-5", "p-6", None, None, None, None, None
    ]  # fmt: skip
    assert [each["outcome"] for each in results] == [
        *(["invalid"] * 2), *(["refused"] * 2), *(["invalid"] * 7)
    ]  # fmt: skip


async def sent_as(way: str, scene: Scene, lines: list[str]) -> list[Any]:
    """Send payments that are given as JSON in a batch or in a stream; return the results."""
    if way == "batch":
        content, kind = f"[{','.join(lines)}]", "application/json"
    else:
        content, kind = "\n".join(lines), NDJSON
    body = content.encode(errors="surrogateescape")
    answer = await scene.client.post(
        f"/payments/{way}", content=body, headers={"Content-Type": kind}
    )
    assert answer.status_code == 200, answer.text
    return answer.json() if way == "batch" else list(map(json.loads, answer.text.splitlines()))


async def test_a_stream_is_scheduled_in_chunks_with_a_line_for_each(scene: Scene) -> None:
    lines = [json.dumps(a_body(f"p-{number}")) for number in range(2_500)]
    lines[1_700] = "{nonsense"

    answer = await scene.client.post(
        "/payments/stream", content="\n".join(lines), headers={"Content-Type": NDJSON}
    )

    assert answer.status_code == 200
    results = [msgspec.json.decode(line) for line in answer.content.splitlines()]
    assert [each["index"] for each in results] == list(range(2_500))
    assert [each["index"] for each in results if each["outcome"] != "scheduled"] == [1_700]
    assert len(await scene.rows()) == 2_499


@pytest.mark.parametrize("chunk_bytes", [1_000, 100_000])
async def test_a_line_that_is_too_long_is_refused_alone(scene: Scene, chunk_bytes: int) -> None:
    """One of a million lines must not undo the others; its bytes are not kept."""
    lines = [json.dumps(a_body(f"p-{number}")) for number in range(3)]
    long = json.dumps(a_body("p-long", participant_id="x" * 2 * PAYMENT_BYTES_MAX))
    body = "\n".join([lines[0], "", long, lines[1], long, lines[2], long]).encode()

    async def sent() -> AsyncIterator[bytes]:
        for start in range(0, len(body), chunk_bytes):
            yield body[start : start + chunk_bytes]

    answer = await scene.client.post(
        "/payments/stream", content=sent(), headers={"Content-Type": NDJSON}
    )

    assert answer.status_code == 200
    results = [msgspec.json.decode(line) for line in answer.content.splitlines()]
    assert [each["index"] for each in results] == list(range(6))
    refused = [each for each in results if each["outcome"] != "scheduled"]
    assert [(each["index"], each["outcome"], each["code"]) for each in refused] == [
        (1, "invalid", "invalid-input"),
        (3, "invalid", "invalid-input"),
        (5, "invalid", "invalid-input"),
    ]
    assert [each["detail"] for each in refused] == [
        f"line {number}: has more than {PAYMENT_BYTES_MAX} bytes" for number in (3, 5, 7)
    ]
    assert len(await scene.rows()) == 3


@pytest.mark.parametrize("body", ["[]", "{}", "nonsense", json.dumps([{}] * 1_001)])
async def test_a_body_that_is_no_batch_is_refused(scene: Scene, body: str) -> None:
    headers = {"Content-Type": "application/json"}
    answer = await scene.client.post("/payments/batch", content=body, headers=headers)

    problem(answer, 400, "invalid-input")


# ------------------------------------------------------------------------------------- looking


@pytest.mark.covers("A96")
async def test_a_payment_is_shown_with_its_context_and_its_item(scene: Scene) -> None:
    await scene.post()

    shown = body_of(await scene.client.get("/payments/p-1"))

    assert (shown["payment"]["status"], shown["payment"]["amount"]) == ("SCHEDULED", "12.50")
    assert shown["context"]["debtor"]["bank_name"] == "Commerzbank"
    assert shown["context_version"] == 1
    assert (shown["item"]["state"], shown["item"]["due_at"]) == ("scheduled", FOUR)
    problem(await scene.client.get("/payments/nobody"), 404, "unknown-payment")


async def test_payments_are_listed_by_time_in_pages(scene: Scene) -> None:
    """Payments of one instant are listed by id, and none is left out or shown twice."""
    for number in range(7):
        await scene.post(f"p-{number}", execute_at=f"2031-01-31T16:00:0{number // 3}Z")

    seen: list[str] = []
    after: str | None = None
    while True:
        query = {"limit": "2"} | ({} if after is None else {"after": after})
        page = body_of(await scene.client.get("/payments", params=query))
        seen += [each["payment_id"] for each in page["payments"]]
        after = page["next"]
        if after is None:
            break

    assert seen == [f"p-{number}" for number in range(6, -1, -1)]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"status": "CANCELLED"}, ["p-1"]),
        ({"status": "SCHEDULED", "participant_id": "eve"}, ["p-2"]),
        ({"item_type": "INVOICE"}, []),
        ({"from": "2031-01-31T16:00:01Z"}, ["p-2"]),
        ({"until": "2031-01-31T16:00:01Z"}, ["p-1", "p-0"]),
    ],
    ids=str,
)
async def test_a_list_is_filtered(scene: Scene, query: dict[str, str], expected: list[str]) -> None:
    await scene.post("p-0")
    await scene.post("p-1")
    await scene.post("p-2", participant_id="eve", execute_at="2031-01-31T16:00:01Z")
    await scene.client.post("/payments/p-1/cancel")

    page = body_of(await scene.client.get("/payments", params=query))

    assert [each["payment_id"] for each in page["payments"]] == expected


@pytest.mark.parametrize("after", ["x", "1", "-1.p", "9" * 40 + ".p", "1.\x00"])
async def test_a_wrong_cursor_is_refused(scene: Scene, after: str) -> None:
    answer = await scene.client.get("/payments", params={"after": after})

    problem(answer, 400, "invalid-input")


# ------------------------------------------------------------------------- cancel and reschedule


@pytest.mark.covers("A96")
async def test_a_cancelled_payment_is_not_executed(scene: Scene) -> None:
    """A repeat is harmless, and the same payment again does not bring it back."""
    await scene.post()

    cancelled = body_of(await scene.client.post("/payments/p-1/cancel", json={"reason": "typo"}))
    again = body_of(await scene.client.post("/payments/p-1/cancel"))

    assert (cancelled["payment"]["status"], cancelled["payment"]["reason"]) == ("CANCELLED", "typo")
    assert again["payment"]["status"] == "CANCELLED"
    assert await run_due(scene.app, FakeClock(AT_FOUR)) == []
    assert body_of(await scene.post(), 202)["status"] == "CANCELLED"
    assert await scene.items() == []


async def test_a_payment_without_an_item_is_cancelled(scene: Scene) -> None:
    """A first phase on Temporal may end between its steps, and the payment never be enqueued."""
    await scene.post()
    await scene.app.pool.execute("UPDATE penstock.payment SET item_id = NULL")

    cancelled = body_of(await scene.client.post("/payments/p-1/cancel", json={}))

    assert cancelled["payment"]["status"] == "CANCELLED"


@pytest.mark.covers("A96")
async def test_a_rescheduled_payment_is_due_at_the_new_instant(scene: Scene) -> None:
    await scene.post()
    later = "2031-02-01T16:00:00Z"

    moved = body_of(await scene.client.post("/payments/p-1/reschedule", json={"execute_at": later}))

    assert (moved["payment"]["scheduled_at"], moved["item"]["due_at"]) == (later, later)
    assert await run_due(scene.app, FakeClock(AT_FOUR)) == []
    assert body_of(await scene.post(), 202)["scheduled_at"] == later


@pytest.mark.covers("A96")
async def test_a_claimed_payment_is_neither_cancelled_nor_rescheduled(scene: Scene) -> None:
    """It may have been sent to the rail."""
    await scene.post()
    await _claim(scene)

    cancelled = await scene.client.post("/payments/p-1/cancel")
    moved = await scene.client.post("/payments/p-1/reschedule", json={"execute_at": FOUR})

    assert problem(cancelled, 409, "payment-claimed")["payment_status"] == "claimed"
    assert problem(moved, 409, "payment-claimed")["payment_status"] == "claimed"
    (row,) = await scene.rows()
    assert (row["status"], row["scheduled_at"]) == ("SCHEDULED", AT_FOUR)


async def test_an_executed_payment_is_neither_cancelled_nor_rescheduled(scene: Scene) -> None:
    await scene.post()
    await scene.app.pool.execute(
        "SELECT penstock.move_payments(ARRAY['p-1'], ARRAY['SCHEDULED'], 'ACCEPTED')"
    )

    cancelled = problem(await scene.client.post("/payments/p-1/cancel"), 409, "payment-claimed")
    moved = await scene.client.post("/payments/p-1/reschedule", json={"execute_at": FOUR})

    assert cancelled["payment_status"] == "ACCEPTED"
    problem(moved, 409, "payment-claimed")


@pytest.mark.parametrize(
    ("outcome", "place"), [("dead", "dead"), ("done", "dispatched")], ids=["dead", "on Temporal"]
)
async def test_a_payment_whose_item_has_ended_is_not_called_claimed(
    scene: Scene, outcome: Literal["dead", "done"], place: str
) -> None:
    """Whoever waits for the claim to end would wait for ever."""
    await scene.post()
    async with scene.app.pool.acquire() as db:
        item_id = await db.fetchval("SELECT item_id FROM penstock.payment")
        await hold(db, item_id, who="test", reason="test", owner="payments")
        await resolve(db, item_id, outcome, who="test", reason="test", owner="payments")

    moved = await scene.client.post("/payments/p-1/reschedule", json={"execute_at": FOUR})

    assert problem(moved, 409, "payment-claimed")["payment_status"] == place


async def test_a_payment_that_temporal_has_not_executed_is_cancelled(scene: Scene) -> None:
    """Its workflow waits for its delay, or was terminated; whoever executes it looks first."""
    await scene.post()
    async with scene.app.pool.acquire() as db:
        item_id = await db.fetchval("SELECT item_id FROM penstock.payment")
        await hold(db, item_id, who="test", reason="test", owner="payments")
        await resolve(db, item_id, "done", who="test", reason="test", owner="payments")

    cancelled = body_of(await scene.client.post("/payments/p-1/cancel", json={"reason": "fraud"}))

    assert (cancelled["payment"]["status"], cancelled["payment"]["reason"]) == (
        "CANCELLED",
        "fraud",
    )
    (entry,) = await scene.app.pool.fetch(
        "SELECT subject, after FROM penstock.audit WHERE action = 'payment.cancelled'"
    )
    assert (entry["subject"], json.loads(entry["after"])["reason"]) == ("p-1", "fraud")


async def test_the_kernel_refuses_to_cancel_the_item_alone(scene: Scene) -> None:
    """The payment would stay SCHEDULED, and nothing would execute it."""
    await scene.post()
    (row,) = await scene.rows()

    answer = await scene.client.post(f"/items/{ItemId(row['item_id'])}/cancel")

    assert "penstock payment cancel" in problem(answer, 403, "lane-is-owned")["detail"]


async def _claim(scene: Scene) -> None:
    """Have a worker hold the payment."""
    async with scene.app.pool.acquire() as db:
        lane = await read_lane(db, LANE)
        lease = await claim(db, lane.lane_id, Cursor(), limit=10, worker="test", now=AT_FOUR)
    assert isinstance(lease, Lease)
