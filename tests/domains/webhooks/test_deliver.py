"""What an answer, or the lack of one, makes of a delivery, an event and its endpoint."""

import asyncio
from datetime import timedelta
from ipaddress import ip_network
from itertools import pairwise

import pytest
from structlog.testing import capture_logs

from penstock import Retry
from penstock.integrations.http_client import Egress
from penstock.kernel.lane import read_lane
from penstock.testing import FakeClock, run_due, run_to_end
from tests.domains.webhooks.scene import NOWHERE, Subscribed, Tenant, body_of, opened_with
from tests.receiver import Answer, Close, Drip, Hang, Raw, Receiver, Reply, receiving

SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)

CLOSED = {
    "breaker": "closed",
    "failures": 0,
    "open_until": None,
    "cooldown_until": None,
    "calls": 0,
}


@pytest.mark.covers("B24")
@pytest.mark.parametrize("status", [200, 201, 202, 204, 226, 299])
async def test_any_2xx_is_a_delivery(tenant: Tenant, status: int) -> None:
    async with receiving(answers=[status]) as receiver:
        subscribed = await tenant.subscribe(receiver.url)
        event = await tenant.send()
        shown = await tenant.until(event["id"], "delivered")

    (attempt,) = await tenant.attempts(event["id"])
    assert shown["delivered_at"] == attempt["created_at"]
    assert (attempt["status_code"], attempt["error"]) == (status, None)
    assert await tenant.endpoint_status(subscribed) == CLOSED


@pytest.mark.parametrize("ending", [Close(), Close(is_reset=True)], ids=["end", "reset"])
async def test_every_request_that_an_endpoint_gets_is_an_attempt(
    tenant: Tenant, ending: Close
) -> None:
    """A reset on a kept connection is no reason to send again without a record and a backoff."""
    async with receiving(answers=[200, ending, 200]) as receiver:
        await tenant.subscribe(receiver.url)
        first = await tenant.send()
        await tenant.until(first["id"], "delivered")
        second = await tenant.send()
        await tenant.until(second["id"], "delivered")

    assert [request.connection for request in receiver.requests] == [1, 1, 2]
    broken, repeated = await tenant.attempts(second["id"])
    assert (broken["outcome"], repeated["outcome"]) == ("retry", "done")
    assert broken["error"].startswith("closed")


@pytest.mark.parametrize(
    "refused",
    [
        ("127.0.0.1", Egress()),
        ("localhost", Egress()),
        ("127.0.0.1", Egress([ip_network("127.0.0.0/8")], ports=frozenset({443}))),
    ],
    ids=["an address", "a name", "a port"],
)
async def test_a_worker_that_may_not_reach_an_endpoint_leaves_its_deliveries_to_others(
    own: Tenant, clock: FakeClock, refused: tuple[str, Egress]
) -> None:
    """One worker without PENSTOCK_EGRESS_ALLOW must not end what all others could deliver."""
    host, egress = refused
    async with receiving() as receiver:
        subscribed = await own.subscribe(receiver.url_of(host))
        event = await own.send()
        async with opened_with(own.penstock.address, egress=egress) as other:
            with capture_logs() as lines:
                for _ in range(6):
                    await run_due(other, clock)
                    clock.advance(HOUR)

        waiting = await own.show(event["id"])
        await run_due(own.penstock, clock)
        delivered = await own.show(event["id"])

    assert (waiting["status"], waiting["attempts"]) == ("retrying", 0)
    assert waiting["last_error"].startswith("refused_address: the host may not be reached")
    assert "PENSTOCK_EGRESS_ALLOW" in waiting["last_error"]
    logged = [line for line in lines if line["event"] == "egress.refused"]
    assert {line["subscription_id"] for line in logged} == {subscribed.id}
    assert {line["log_level"] for line in logged} == {"error"}
    assert delivered["status"] == "delivered"


@pytest.mark.covers("B42")
@pytest.mark.parametrize("status", [300, 301, 302, 303, 304, 307, 308, 399])
async def test_a_redirect_is_not_followed(tenant: Tenant, status: int) -> None:
    """It would lead to where nobody has checked, and hand a signed body to somebody else."""
    async with receiving() as elsewhere:
        moved = Reply(status, headers={"Location": elsewhere.url})
        async with receiving(answers=[moved]) as receiver:
            subscribed = await tenant.subscribe(receiver.url)
            event = await tenant.send()
            shown = await tenant.until(event["id"], "failed")

        assert elsewhere.opened_count == 0
    assert len(receiver.requests) == 1
    assert shown["last_error"] == f"HTTP {status}"
    assert await tenant.endpoint_status(subscribed) == CLOSED


PERMANENT = [
    400, 401, 402, 403, 404, 405, 406, 407, 409, 411, 412, 413, 414, 415, 416, 417, 418, 421, 422,
    423, 424, 426, 428, 431, 451, 499,
]  # fmt: skip


@pytest.mark.covers("B25")
@pytest.mark.parametrize("status", PERMANENT)
async def test_a_permanent_refusal_fails_the_event_at_once(tenant: Tenant, status: int) -> None:
    async with receiving(answers=[Reply(status, b"no")]) as receiver:
        subscribed = await tenant.subscribe(receiver.url)
        event = await tenant.send()
        shown = await tenant.until(event["id"], "failed")

    assert len(receiver.requests) == 1
    (attempt,) = await tenant.attempts(event["id"])
    assert (attempt["status_code"], attempt["response_body"]) == (status, "no")
    assert attempt["outcome"] == "dead"
    assert shown["last_error"] == attempt["error"] == f"HTTP {status}"
    assert await tenant.endpoint_status(subscribed) == CLOSED


@pytest.mark.covers("B69")
async def test_bad_payloads_do_not_close_the_way_for_good_ones(tenant: Tenant) -> None:
    """An endpoint that refuses an event is alive; ten such refusals must not open its breaker."""
    async with receiving(answers=[*[422] * 10, 200]) as receiver:
        subscribed = await tenant.subscribe(receiver.url)
        for _ in range(10):
            event = await tenant.send()
            await tenant.until(event["id"], "failed")

        assert await tenant.endpoint_status(subscribed) == CLOSED
        event = await tenant.send()
        await tenant.until(event["id"], "delivered")


FAILURES: list[tuple[str, Answer | int, int | None, str]] = [
    ("408", 408, 408, "HTTP 408"),
    ("425", 425, 425, "HTTP 425"),
    ("429", 429, 429, "HTTP 429"),
    ("500", 500, 500, "HTTP 500"),
    ("501", 501, 501, "HTTP 501"),
    ("502", 502, 502, "HTTP 502"),
    ("503", 503, 503, "HTTP 503"),
    ("504", 504, 504, "HTTP 504"),
    ("599", 599, 599, "HTTP 599"),
    ("silence", Hang(), None, "timeout"),
    ("drip", Drip(b"x" * 1_000), None, "timeout"),
    ("half an answer", Raw([b"HTTP/1.1 200 OK\r\n"], is_last=False), None, "timeout"),
    ("end", Close(), None, "closed"),
    ("reset", Close(is_reset=True), None, "closed"),
    ("cut short", Raw([b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort"]), None, "closed"),
    ("garbage", Raw([b"SSH-2.0-OpenSSH_9.2\r\n\r\n"]), None, "malformed"),
]


@pytest.mark.covers("B26", "B69")
@pytest.mark.parametrize(
    ("answer", "status", "error"),
    [case[1:] for case in FAILURES],
    ids=[case[0] for case in FAILURES],
)
async def test_what_may_pass_is_tried_again(
    tenant: Tenant, *, answer: Answer | int, status: int | None, error: str
) -> None:
    async with receiving(answers=[answer, 200]) as receiver:
        subscribed = await tenant.subscribe(receiver.url, timeout_seconds=0.2)
        event = await tenant.send()
        await tenant.until(event["id"], "delivered")

    first, second = await tenant.attempts(event["id"])
    assert (first["outcome"], first["status_code"]) == ("retry", status)
    assert first["error"].startswith(error)
    assert (second["outcome"], second["status_code"]) == ("done", 200)
    assert len(receiver.requests) == 2
    assert await tenant.endpoint_status(subscribed) == CLOSED


@pytest.mark.covers("B26")
async def test_an_endpoint_that_is_down_gets_its_event_when_it_is_back(
    own: Tenant, clock: FakeClock
) -> None:
    async with receiving() as receiver:
        port = receiver.port
    subscribed = await own.subscribe(f"http://127.0.0.1:{port}/")
    event = await own.send()
    await run_due(own.penstock, clock)
    shown = await own.show(event["id"])
    assert shown["status"] == "retrying"
    assert shown["last_error"].startswith("connect")
    assert (await own.endpoint_status(subscribed))["failures"] == 1

    async with receiving(port=port) as receiver:
        clock.advance(HOUR)
        await run_due(own.penstock, clock)

    assert len(receiver.requests) == 1
    assert (await own.show(event["id"]))["status"] == "delivered"


@pytest.mark.covers("B26", "B69")
@pytest.mark.parametrize(
    ("answer", "failures"), [(503, 1), (Close(), 1), (429, 0), (408, 0), (425, 0), (404, 0)]
)
async def test_only_failures_of_the_endpoint_count_against_it(
    tenant: Tenant, answer: Answer | int, failures: int
) -> None:
    async with receiving(answers=[answer]) as receiver:
        subscribed = await tenant.subscribe(receiver.url, retry_schedule_seconds=[3600])
        event = await tenant.send()
        await tenant.until(event["id"], "retrying", "failed")

    assert await tenant.endpoint_status(subscribed) == CLOSED | {"failures": failures}


@pytest.mark.covers("B41")
async def test_an_event_fails_when_its_attempts_are_used_up(tenant: Tenant) -> None:
    async with receiving(answers=[500, 502, 429, 500, 418, 500]) as receiver:
        await tenant.subscribe(receiver.url, retry_schedule_seconds=[0, 0, 0])
        event = await tenant.send()
        shown = await tenant.until(event["id"], "failed")

    attempts = await tenant.attempts(event["id"])
    assert [each["attempt_number"] for each in attempts] == [1, 2, 3, 4]
    assert [each["outcome"] for each in attempts] == ["retry", "retry", "retry", "dead"]
    assert [each["status_code"] for each in attempts] == [500, 502, 429, 500]
    assert (shown["attempts"], shown["last_error"]) == (4, "HTTP 500")
    assert len(receiver.requests) == 4


@pytest.mark.covers("B31", "B35", "B36", "B37", "B38", "B39", "B40", "B41", "B62", "B63")
async def test_an_event_is_tried_five_times_as_the_dispatcher_before_did(
    own: Tenant, clock: FakeClock
) -> None:
    async with receiving(answers=[503]) as receiver:
        await own.subscribe(receiver.url)
        event = await own.send()
        ran = await run_to_end(own.penstock, clock)

    waits = [(after.at - before.at) / SECOND for before, after in pairwise(ran)]
    assert len(ran) == len(receiver.requests) == 5
    for wait, mean in zip(waits, [1, 2, 4, 8], strict=True):
        assert 0.9 * mean <= wait <= 1.1 * mean
    assert (await own.show(event["id"]))["status"] == "failed"
    lane = await read_lane(own.penstock.pool, "penstock.webhooks")
    assert 14.4 <= lane.backoff.delay(5, chance=0.3) / SECOND <= 17.6
    assert lane.backoff.cap == HOUR


# ------------------------------------------------------------------------------- own schedules


@pytest.mark.parametrize("schedule", [[], [60], [1, 10, 100, 1000, 10, 10, 10]])
async def test_a_subscription_may_have_a_schedule_of_its_own(
    own: Tenant, clock: FakeClock, schedule: list[float]
) -> None:
    """With fewer attempts than the lane's five, or more."""
    async with receiving(answers=[429]) as receiver:
        await own.subscribe(receiver.url, retry_schedule_seconds=schedule)
        event = await own.send()
        ran = await run_to_end(own.penstock, clock)

    assert len(receiver.requests) == len(ran) == len(schedule) + 1
    assert (await own.show(event["id"]))["status"] == "failed"
    waits = [(after.at - before.at) / SECOND for before, after in pairwise(ran)]
    for wait, mean in zip(waits, schedule, strict=True):
        assert 0.9 * mean <= wait <= 1.1 * mean


async def test_being_put_off_does_not_move_a_schedule_on(own: Tenant, clock: FakeClock) -> None:
    """A breaker that was open for an hour must not use up the delays that come after."""
    async with receiving(answers=[429]) as receiver:
        subscribed = await own.subscribe(receiver.url, retry_schedule_seconds=[10, 100_000])
        event = await own.send()
        await own.change(subscribed, state="paused")
        for _ in range(3):
            await run_due(own.penstock, clock)
            clock.advance(HOUR)
        await own.change(subscribed, state="active")
        (first,) = await run_due(own.penstock, clock)
        shown = await own.show(event["id"])

    assert shown["attempts"] == 1
    (attempt,) = await own.attempts(event["id"])
    assert attempt["attempt_number"] == 1
    await_until = first.at + 11 * SECOND
    clock.advance(11 * SECOND)
    async with receiving(answers=[200], port=receiver.port):
        (second,) = await run_due(own.penstock, clock)
    assert second.at == await_until
    assert [each["attempt_number"] for each in await own.attempts(event["id"])] == [1, 2]


async def test_each_subscription_has_a_timeout_of_its_own(tenant: Tenant) -> None:
    answered = asyncio.Event()
    async with receiving(answers=[Reply(after=answered)]) as slow:
        patient = await tenant.subscribe(slow.url, timeout_seconds=20)
        hasty = await tenant.subscribe(slow.url, timeout_seconds=0.1, retry_schedule_seconds=[])
        event = await tenant.send()
        await tenant.until_shown(
            event["id"], lambda event: event["deliveries"][1]["status"] == "failed"
        )
        answered.set()
        shown = await tenant.until(event["id"], "partly")

    assert [each["subscription_id"] for each in shown["deliveries"]] == [patient.id, hasty.id]
    attempts = {each["subscription_id"]: each for each in await tenant.attempts(event["id"])}
    assert attempts[hasty.id]["error"].startswith("timeout")
    assert 90 <= attempts[hasty.id]["duration_ms"] < 2_000
    assert attempts[patient.id]["status_code"] == 200


# ----------------------------------------------------------------------------- what is recorded


@pytest.mark.covers("B30", "B72")
@pytest.mark.parametrize(
    ("body", "kept"),
    [
        pytest.param(b"", "", id="nothing"),
        pytest.param("schön".encode(), "schön", id="text"),
        pytest.param(b"x" * 16_384, "x" * 16_384, id="as much as is kept"),
        pytest.param(b"x" * 16_385, "x" * 16_384, id="more"),
        pytest.param(b"x" * 1_000_000, "x" * 16_384, id="far more"),
        pytest.param(b"a\xff\xfeb", "a��b", id="not UTF-8"),
        pytest.param(b"a\x00b", "a�b", id="NUL"),
        pytest.param(b"\xed\xa0\x80", "���", id="half a character"),
        pytest.param(b'{"a": "\\u0000"}', '{"a": "\\u0000"}', id="an escaped NUL"),
        pytest.param(b"\x01" * 16_384, "\x01" * 16_384, id="nothing that can be printed"),
    ],
)
@pytest.mark.parametrize("status", [200, 404])
async def test_what_an_endpoint_answers_is_kept_within_bounds(
    tenant: Tenant, *, status: int, body: bytes, kept: str
) -> None:
    """It is for people; whatever an endpoint sends, the attempt has to be written down."""
    async with receiving(answers=[Reply(status, body)]) as receiver:
        await tenant.subscribe(receiver.url)
        event = await tenant.send()
        await tenant.until(event["id"], "delivered", "failed")

    (attempt,) = await tenant.attempts(event["id"])
    assert attempt["status_code"] == status
    assert attempt["response_body"] == kept


@pytest.mark.covers("B5", "B30")
async def test_every_attempt_is_recorded(tenant: Tenant) -> None:
    answers = [Reply(503, b"busy", is_last=True), Close(), Reply(200, b"thanks")]
    async with receiving(answers=answers) as receiver:
        subscribed = await tenant.subscribe(receiver.url)
        event = await tenant.send()
        await tenant.until(event["id"], "delivered")

    attempts = await tenant.attempts(event["id"])
    assert [each["attempt_number"] for each in attempts] == [1, 2, 3]
    assert [each["status_code"] for each in attempts] == [503, None, 200]
    assert [each["response_body"] for each in attempts] == ["busy", None, "thanks"]
    assert attempts[0]["error"] == "HTTP 503"
    assert attempts[1]["error"].startswith("closed: ")
    assert attempts[2]["error"] is None
    assert {each["subscription_id"] for each in attempts} == {subscribed.id}
    assert all(0 <= each["duration_ms"] < 10_000 for each in attempts)
    times = [each["created_at"] for each in attempts]
    assert times == sorted(times)


@pytest.mark.parametrize("moment", ["0", "Thu, 01 Jan 1998 00:00:00 GMT"])
async def test_a_retry_after_that_is_over_leaves_the_backoff_as_it_is(
    own: Tenant, clock: FakeClock, moment: str
) -> None:
    """Else all attempts would be made in one moment, and the delivery be dead."""
    async with receiving(answers=[Reply(429, headers={"Retry-After": moment})]) as receiver:
        await own.subscribe(receiver.url)
        await own.send()
        (attempted,) = await run_due(own.penstock, clock)

    assert isinstance(attempted.outcome, Retry)
    assert attempted.outcome.after is None


# ------------------------------------------------------------------------- the end of endpoints


async def test_an_endpoint_that_is_gone_ends_its_subscription(tenant: Tenant) -> None:
    """410 is the one answer that is about all events and not about this one."""
    async with receiving(answers=[Reply(410, b"moved out"), 200]) as receiver:
        subscribed = await tenant.subscribe(receiver.url)
        event = await tenant.send()
        shown = await tenant.until(event["id"], "failed")
        found = await tenant.read(subscribed)

        assert len(await tenant.attempts(event["id"])) == 1
        assert shown["last_error"] == "HTTP 410"
        assert (found["state"], found["state_reason"]) == ("disabled", "the endpoint answered 410")
        assert (await tenant.endpoint_status(subscribed))["breaker"] == "closed"
        assert (await tenant.send())["deliveries"] == 0
        audited = (await tenant.client.get("/audit", params={"subject": subscribed.id})).json()
        assert audited["items"][0]["who"] == "worker"

        found = await tenant.change(subscribed, state="active")
        assert (found["state"], found["state_reason"]) == ("active", None)
        event = await tenant.send()
        await tenant.until(event["id"], "delivered")
    assert len(receiver.requests) == 2


@pytest.mark.parametrize("state", ["disabled", "deleted"])
async def test_what_is_under_way_to_an_ended_subscription_ends_dead(
    own: Tenant, clock: FakeClock, state: str
) -> None:
    async with receiving(answers=[410]) as receiver:
        subscribed = await own.subscribe(receiver.url)
        event = await own.send()
        if state == "deleted":
            await own.client.delete(f"/subscriptions/{subscribed.id}")
        else:
            await disable(own, subscribed)
        await run_due(own.penstock, clock)

    shown = await own.show(event["id"])
    assert receiver.requests == []
    assert shown["status"] == "failed"
    assert shown["last_error"] == f"the subscription is {state}"


async def disable(tenant: Tenant, subscribed: Subscribed) -> None:
    await tenant.penstock.pool.execute(
        "UPDATE penstock.webhook_subscription SET state = 'disabled', version = version + 1 "
        "WHERE subscription_id = $1",
        subscribed.id,
    )


@pytest.mark.covers("B42")
async def test_a_url_that_can_no_longer_be_sent_to_fails_the_event(
    own: Tenant, clock: FakeClock
) -> None:
    """What was sound when it was stored may be refused now, by every process."""
    await own.subscribe()
    event = await own.send()
    await own.penstock.pool.execute(
        "UPDATE penstock.webhook_subscription SET url = 'ftp://127.0.0.1/', version = version + 1"
    )

    await run_due(own.penstock, clock)

    shown = await own.show(event["id"])
    assert shown["status"] == "failed"
    assert "url" in shown["last_error"]


async def test_an_event_that_retention_has_dropped_is_not_delivered(
    own: Tenant, clock: FakeClock
) -> None:
    subscribed = await own.subscribe()
    await own.send()
    await own.penstock.pool.execute("DELETE FROM penstock.webhook_event")

    (attempted,) = await run_due(own.penstock, clock)

    assert "gone" in getattr(attempted.outcome, "reason", "")
    assert (await own.endpoint_status(subscribed))["failures"] == 0


async def test_a_changed_url_counts_from_the_next_attempt_on(tenant: Tenant) -> None:
    async with receiving() as first, receiving() as second:
        subscribed = await tenant.subscribe(first.url)
        event = await tenant.send()
        await tenant.until(event["id"], "delivered")
        await tenant.change(subscribed, url=second.url)
        event = await tenant.send()
        await tenant.until(event["id"], "delivered")

    assert (len(first.requests), len(second.requests)) == (1, 1)


async def test_a_retry_goes_to_where_the_subscription_points_now(
    own: Tenant, clock: FakeClock
) -> None:
    async with receiving() as receiver:
        subscribed = await own.subscribe(NOWHERE)
        event = await own.send()
        await run_due(own.penstock, clock)
        await own.change(subscribed, url=receiver.url)
        clock.advance(HOUR)
        await run_due(own.penstock, clock)

    assert len(receiver.requests) == 1
    assert (await own.show(event["id"]))["status"] == "delivered"


async def test_one_broken_subscription_does_not_fail_the_look_up_for_others(
    own: Tenant, clock: FakeClock
) -> None:
    """Deliveries that come together are looked up together."""
    async with receiving() as receiver:
        broken = await own.subscribe(receiver.url)
        await own.subscribe(receiver.url)
        event = await own.send()
        await own.penstock.pool.execute(
            "UPDATE penstock.webhook_secret SET sealed = 'x' WHERE subscription_no = 1"
        )
        await run_due(own.penstock, clock)

    shown = await own.show(event["id"])
    assert [each["status"] for each in shown["deliveries"]] == ["retrying", "delivered"]
    assert "sealed secret" in shown["deliveries"][0]["last_error"]
    assert broken.secret not in str(shown)


def paths_of(receiver: Receiver) -> list[str]:
    return [each.path for each in receiver.requests]


async def test_connections_are_kept_between_deliveries(tenant: Tenant) -> None:
    async with receiving() as receiver:
        await tenant.subscribe(receiver.url_of("127.0.0.1", "/a?b=c"))
        for _ in range(3):
            event = await tenant.send()
            await tenant.until(event["id"], "delivered")

    assert paths_of(receiver) == ["/a?b=c"] * 3
    assert receiver.opened_count == 1
    listed = body_of(await tenant.client.get("/events", params={"tenant": tenant.name}))["events"]
    assert {each["status"] for each in listed} == {"delivered"}
