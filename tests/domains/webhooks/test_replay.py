"""Old events sent again, or for the first time: by a job that can be stopped, and killed."""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from penstock.base.aio import spawn
from penstock.domains.webhooks.replay import read_replay
from penstock.testing import FakeClock, run_due, run_to_end
from tests.api.scene import problem
from tests.domains.webhooks.scene import (
    NOWHERE,
    PATIENCE,
    Json,
    Subscribed,
    Tenant,
    body_of,
    make_tenant,
    opened_with,
)
from tests.fault.waiting import is_blocked, until
from tests.receiver import Received, Receiver, receiving

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


async def start(tenant: Tenant, subscribed: Subscribed, **more: Any) -> Json:
    body = {"subscription_id": subscribed.id} | more
    return body_of(await tenant.client.post("/replays", json=body), 202)


async def read(tenant: Tenant, replay: Json) -> Json:
    return body_of(await tenant.client.get(f"/replays/{replay['id']}"))


async def set_state(tenant: Tenant, replay: Json, state: str) -> Json:
    path = f"/replays/{replay['id']}"
    return body_of(await tenant.client.patch(path, json={"state": state}))


def ids_of(receiver: Receiver) -> list[str]:
    """Return which events came, in their order."""
    return [json.loads(each.body)["id"] for each in receiver.requests]


async def step(tenant: Tenant, replay: Json, *, wanted_max: int) -> None:
    """Do one step of a replay, as the worker does, however small."""
    await tenant.penstock.pool.execute(
        "SELECT penstock.step_webhook_replay($1, 10000, $2)", int(replay["id"]), wanted_max
    )


# --------------------------------------------------------------------------------- which events


@pytest.mark.parametrize(
    ("which", "wanted"),
    [
        ("missing", ["before-1", "before-2"]),
        ("failed", ["failed"]),
        ("delivered", ["delivered"]),
        ("all", ["before-1", "before-2", "delivered", "failed", "waiting"]),
    ],
)
async def test_a_replay_is_about_what_was_asked_for(
    own: Tenant, clock: FakeClock, *, which: str, wanted: list[str]
) -> None:
    """A dry run counts just that, and keeps nothing."""

    def answer(request: Received) -> int:
        return {"failed": 404, "waiting": 503}.get(json.loads(request.body)["id"], 200)

    async with receiving(answers=answer) as receiver:
        await own.send(id="before-1")
        await own.send(id="before-2")
        await own.send("other.type", id="other")
        subscribed = await own.subscribe(receiver.url, "order.*", retry_schedule_seconds=[3600])
        other = await own.subscribe(receiver.url_of("127.0.0.1", "/other"), "never")
        for name in ("delivered", "failed", "waiting"):
            await own.send(id=name)
        await make_tenant(own.client, own.penstock).send(id="foreign")
        await run_due(own.penstock, clock)
        receiver.requests.clear()

        dry = await start(own, subscribed, which=which, dry_run=True)
        assert dry["counted"] == len(wanted)
        assert (dry["state"], dry["id"], dry["replayed"]) == ("dry_run", None, 0)
        assert body_of(await own.client.get("/replays"))["replays"] == []

        replay = await start(own, subscribed, which=which)
        assert (replay["counted"], replay["state"]) == (len(wanted), "running")
        await run_due(own.penstock, clock)

    assert sorted(ids_of(receiver)) == wanted
    assert {each.path for each in receiver.requests} == {"/hook"}
    ended = await read(own, replay)
    assert (ended["state"], ended["replayed"]) == ("finished", len(wanted))
    assert ended["finished_at"] is not None
    assert (await start(own, other, which="all", dry_run=True))["counted"] == 0


async def test_a_replay_may_be_of_some_types(own: Tenant, clock: FakeClock) -> None:
    for type_ in ("order.paid", "order.lost", "invoice.paid", "mail"):
        await own.send(type_, id=type_.replace(".", "-"))
    async with receiving() as receiver:
        subscribed = await own.subscribe(receiver.url)

        await start(own, subscribed, event_types=["order.*", "mail"])
        await run_due(own.penstock, clock)

    assert sorted(ids_of(receiver)) == ["mail", "order-lost", "order-paid"]


async def test_a_replay_may_be_of_some_time(own: Tenant, clock: FakeClock) -> None:
    told = [await own.send(id=f"e{number}") for number in range(5)]
    async with receiving() as receiver:
        subscribed = await own.subscribe(receiver.url)
        between = {"from": told[1]["accepted_at"], "until": told[3]["accepted_at"]}
        dry = await start(own, subscribed, **between, dry_run=True)

        await start(own, subscribed, **between)
        await run_due(own.penstock, clock)

    assert dry["counted"] == 2
    assert sorted(ids_of(receiver)) == ["e1", "e2"]


async def test_a_replay_finds_its_first_event_among_many(own: Tenant) -> None:
    """It looks by halves; whatever instant is asked for, none may be passed over."""
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    async with own.penstock.pool.acquire() as db:
        for number in range(40):
            await db.execute(
                "SELECT penstock.accept_events(ARRAY[$1], ARRAY[$2], ARRAY['a'], ARRAY[NULL], "
                "ARRAY['1'], ARRAY[NULL], $3)",
                own.name,
                f"e{number}",
                noon + number * HOUR,
            )
    subscribed = await own.subscribe()
    for number in range(0, 40, 3):
        since = (noon + number * HOUR).isoformat()

        dry = await start(own, subscribed, **{"from": since}, dry_run=True)

        assert dry["counted"] == 40 - number


async def test_a_replay_is_about_events_that_there_were_when_it_began(
    own: Tenant, clock: FakeClock
) -> None:
    async with receiving() as receiver:
        await own.send(id="old")
        subscribed = await own.subscribe(receiver.url)
        await start(own, subscribed, which="all")
        await own.send(id="new")
        await run_due(own.penstock, clock)

    assert sorted(ids_of(receiver)) == ["new", "old"]


async def test_missing_events_are_those_that_the_subscription_wants_now(
    own: Tenant, clock: FakeClock
) -> None:
    for number in range(4):
        await own.send("order.paid", {"n": number}, id=f"e{number}")
    async with receiving() as receiver:
        subscribed = await own.subscribe(receiver.url, "order.*", filter={"n": {"gte": 2}})

        await start(own, subscribed)
        await run_due(own.penstock, clock)

    assert sorted(ids_of(receiver)) == ["e2", "e3"]


async def test_what_was_kept_during_a_pause_is_replayed_once(own: Tenant, clock: FakeClock) -> None:
    async with receiving() as receiver:
        subscribed = await own.subscribe(receiver.url)
        await own.send(id="before")
        await run_due(own.penstock, clock)
        await own.change(subscribed, state="paused")
        for number in range(3):
            assert (await own.send(id=f"kept-{number}"))["deliveries"] == 0
        await own.change(subscribed, state="active")
        for _ in range(2):
            await start(own, subscribed)
            await run_due(own.penstock, clock)

    assert sorted(ids_of(receiver)) == ["before", "kept-0", "kept-1", "kept-2"]


async def test_a_replayed_event_is_the_same_event(own: Tenant, clock: FakeClock) -> None:
    """A receiver that has it already knows it by its id, and its status is of the last delivery."""
    async with receiving(answers=[200, 503, 200]) as receiver:
        subscribed = await own.subscribe(receiver.url)
        event = await own.send(data={"a": 1.0}, id="e1")
        await run_due(own.penstock, clock)
        await start(own, subscribed, which="delivered")
        await run_due(own.penstock, clock)
        shown = await own.show(event["id"])
        assert (shown["status"], shown["deliveries"][0]["attempts"]) == ("retrying", 1)
        await run_to_end(own.penstock, clock)

    first, second, third = receiver.requests
    assert first.body == second.body == third.body
    assert {each.headers["webhook-id"] for each in receiver.requests} == {"e1"}
    shown = await own.show("e1")
    assert shown["status"] == "delivered"
    assert len(shown["deliveries"]) == 1
    assert len(await own.attempts("e1")) == 3


async def test_a_failed_event_is_revived_with_fresh_attempts(own: Tenant, clock: FakeClock) -> None:
    async with receiving(answers=[404, 503, 200]) as receiver:
        subscribed = await own.subscribe(receiver.url, retry_schedule_seconds=[1])
        event = await own.send()
        await run_due(own.penstock, clock)
        assert (await own.show(event["id"]))["status"] == "failed"
        await start(own, subscribed, which="failed")
        await run_to_end(own.penstock, clock)

    assert len(receiver.requests) == 3
    assert (await own.show(event["id"]))["status"] == "delivered"


async def test_a_replay_keeps_the_order_of_a_key(own: Tenant, clock: FakeClock) -> None:
    for number in range(6):
        await own.send(data={"key": number % 2, "n": number}, id=f"e{number}")
    async with receiving() as receiver:
        subscribed = await own.subscribe(receiver.url, ordering_key="key")

        await start(own, subscribed)
        await run_due(own.penstock, clock)

    ids = ids_of(receiver)
    assert [each for each in ids if each in {"e0", "e2", "e4"}] == ["e0", "e2", "e4"]
    assert [each for each in ids if each in {"e1", "e3", "e5"}] == ["e1", "e3", "e5"]


# ----------------------------------------------------------------------------------- its course


async def events_for(tenant: Tenant, count: int, *, url: str = NOWHERE) -> Subscribed:
    """Make a subscription that has missed some events."""
    body = [{"type": "a", "data": n, "id": f"e{n}", "tenant": tenant.name} for n in range(count)]
    body_of(await tenant.client.post("/events/batch", json=body))
    return await tenant.subscribe(url, rate_limit=None)


async def items_of(tenant: Tenant) -> list[str]:
    """Return the events that were sent again, in the order of their items."""
    rows = await tenant.penstock.pool.fetch(
        """
        SELECT event_id FROM penstock.webhook_redelivery
        JOIN penstock.webhook_event USING (event_no)
        ORDER BY item_id
        """
    )
    return [row["event_id"] for row in rows]


async def test_a_replay_that_is_paused_goes_on_where_it_stopped(own: Tenant) -> None:
    subscribed = await events_for(own, 10)
    replay = await start(own, subscribed)
    await step(own, replay, wanted_max=3)

    paused = await set_state(own, replay, "paused")
    await step(own, replay, wanted_max=3)
    await step(own, replay, wanted_max=3)

    assert (paused["state"], paused["replayed"]) == ("paused", 3)
    assert await items_of(own) == ["e0", "e1", "e2"]
    resumed = await set_state(own, replay, "running")
    assert resumed["state"] == "running"
    for _ in range(4):
        await step(own, replay, wanted_max=3)
    assert await items_of(own) == [f"e{number}" for number in range(10)]
    ended = await read(own, replay)
    assert (ended["state"], ended["replayed"], ended["counted"]) == ("finished", 10, 10)


async def test_a_paused_replay_is_taken_up_by_a_worker_again(own: Tenant, clock: FakeClock) -> None:
    async with receiving() as receiver:
        await own.send(id="e1")
        subscribed = await own.subscribe(receiver.url)
        replay = await start(own, subscribed)
        await set_state(own, replay, "paused")
        await run_due(own.penstock, clock)
        assert receiver.requests == []
        await set_state(own, replay, "running")
        await run_due(own.penstock, clock)

    assert ids_of(receiver) == ["e1"]
    assert (await read(own, replay))["state"] == "finished"


async def test_a_cancelled_replay_is_over(own: Tenant) -> None:
    subscribed = await events_for(own, 10)
    replay = await start(own, subscribed)
    await step(own, replay, wanted_max=3)

    cancelled = await set_state(own, replay, "cancelled")
    await step(own, replay, wanted_max=3)

    assert cancelled["state"] == "cancelled"
    assert cancelled["finished_at"] is not None
    assert len(await items_of(own)) == 3
    for state in ("running", "paused"):
        response = await own.client.patch(f"/replays/{replay['id']}", json={"state": state})
        problem(response, 409, "replay-conflict")
    assert (await set_state(own, replay, "cancelled"))["state"] == "cancelled"


async def test_a_finished_replay_stays_finished(own: Tenant, clock: FakeClock) -> None:
    subscribed = await own.subscribe()
    replay = await start(own, subscribed)
    await run_due(own.penstock, clock)

    assert (await read(own, replay))["state"] == "finished"
    for state in ("running", "paused", "cancelled"):
        response = await own.client.patch(f"/replays/{replay['id']}", json={"state": state})
        problem(response, 409, "replay-conflict")


async def test_a_replay_that_is_killed_in_the_middle_repeats_nothing(
    own: Tenant, clock: FakeClock
) -> None:
    """Each step commits what it has sent and how far it is, or neither; any worker goes on."""
    async with receiving() as receiver:
        subscribed = await events_for(own, 10, url=receiver.url)
        replay = await start(own, subscribed)
        await step(own, replay, wanted_max=4)
        async with own.penstock.pool.acquire() as db:
            transaction = db.transaction()
            await transaction.start()
            await db.execute("SELECT penstock.step_webhook_replay($1, 10000, 4)", int(replay["id"]))
            await transaction.rollback()
        async with opened_with(own.penstock.address) as other:
            await run_due(other, clock)

    assert sorted(ids_of(receiver)) == [f"e{number}" for number in range(10)]
    assert (await read_replay(own.penstock.pool, int(replay["id"]))).replayed == 10


async def test_two_workers_on_one_replay_repeat_nothing(own: Tenant) -> None:
    """A lease that expired may leave two who believe it is theirs."""
    subscribed = await events_for(own, 20)
    replay = await start(own, subscribed)

    await asyncio.gather(*(step(own, replay, wanted_max=3) for _ in range(10)))

    assert sorted(await items_of(own)) == sorted(f"e{number}" for number in range(20))


async def test_two_replays_of_what_is_missing_send_it_once(own: Tenant) -> None:
    """Somebody asks again because the first answer was lost, and both run at the same time."""
    subscribed = await events_for(own, 3)
    first, second = await start(own, subscribed), await start(own, subscribed)

    async def is_waiting_or_done() -> bool:
        return later.done() or await is_blocked(own.penstock.pool)

    async with (
        own.penstock.pool.acquire() as db,
        asyncio.TaskGroup() as group,
        db.transaction(),
    ):
        await db.execute("SELECT penstock.step_webhook_replay($1, 100, 100)", int(first["id"]))
        later = spawn(group, step(own, second, wanted_max=100))
        await until(is_waiting_or_done, within=PATIENCE)

    assert await items_of(own) == ["e0", "e1", "e2"]


async def test_a_replay_in_small_steps_looks_at_every_event_once(own: Tenant) -> None:
    """Steps end after so many looked at, too: most events may be of no interest."""
    body = [
        {"type": "a" if n % 7 == 0 else "b", "data": n, "id": f"e{n}", "tenant": own.name}
        for n in range(50)
    ]
    body_of(await own.client.post("/events/batch", json=body))
    subscribed = await own.subscribe("http://127.0.0.1:9/", "a")
    replay = await start(own, subscribed)

    async with own.penstock.pool.acquire() as db:
        for _ in range(100):
            wait = await db.fetchval(
                "SELECT penstock.step_webhook_replay($1, 4, 1)", int(replay["id"])
            )
            if wait is None:
                break

    assert await items_of(own) == [f"e{n}" for n in range(0, 50, 7)]
    assert (await read(own, replay))["state"] == "finished"


async def run_at_rate(tenant: Tenant, replay: Json, *, seconds: float) -> int:
    """Step a replay as often as it asks for, and return how much it has sent."""
    async with tenant.penstock.pool.acquire() as db:
        at = await db.fetchval(
            "SELECT next_due_at FROM penstock.webhook_replay WHERE replay_no = $1",
            int(replay["id"]),
        )
        ends_at = at + timedelta(seconds=seconds)
        while at <= ends_at:
            wait = await db.fetchval(
                "SELECT penstock.step_webhook_replay($1, 10000, 1000, $2)", int(replay["id"]), at
            )
            if wait is None:
                break
            at += max(wait, timedelta(milliseconds=1))
    return len(await items_of(tenant))


@pytest.mark.parametrize(
    ("rate", "seconds", "count"), [(10, 5, 50), (1, 20, 20), (0.5, 20, 10), (0.1, 100, 10)]
)
async def test_a_replay_keeps_its_rate(
    own: Tenant, *, rate: float, seconds: float, count: int
) -> None:
    """It must neither flood the endpoint nor stand still."""
    subscribed = await events_for(own, 100)
    replay = await start(own, subscribed, rate=rate)

    sent = await run_at_rate(own, replay, seconds=seconds)

    assert count - 1 <= sent <= count + 1


async def test_a_rate_is_not_saved_up_during_a_pause(own: Tenant) -> None:
    subscribed = await events_for(own, 100)
    replay = await start(own, subscribed, rate=10)
    async with own.penstock.pool.acquire() as db:
        later = await db.fetchval("SELECT now() + interval '1 hour'")
        await db.execute(
            "SELECT penstock.step_webhook_replay($1, 10000, 1000, $2)", int(replay["id"]), later
        )

    assert len(await items_of(own)) <= 11


async def test_replays_are_listed_in_pages_and_audited(own: Tenant) -> None:
    subscribed = await own.subscribe()
    made = [await start(own, subscribed, which="all") for _ in range(3)]
    await set_state(own, made[0], "paused")
    await set_state(own, made[0], "paused")
    await set_state(own, made[0], "cancelled")

    first = body_of(await own.client.get("/replays", params={"limit": "2"}))
    last = body_of(await own.client.get("/replays", params={"after": first["next"]}))

    listed = [*first["replays"], *last["replays"]]
    assert [each["id"] for each in listed] == [each["id"] for each in made[::-1]]
    assert last["next"] is None
    assert listed[0]["created_by"]
    lines = body_of(await own.client.get("/audit", params={"subject": subscribed.id}))["items"]
    assert [line["action"] for line in lines[:5]] == [
        "replay.cancelled", "replay.paused", "replay.started", "replay.started", "replay.started",
    ]  # fmt: skip


# ----------------------------------------------------------------------------- pause and resume


async def test_what_is_under_way_waits_while_its_subscription_is_paused(
    own: Tenant, clock: FakeClock
) -> None:
    async with receiving(answers=[503, 200]) as receiver:
        subscribed = await own.subscribe(receiver.url, retry_schedule_seconds=[1])
        event = await own.send()
        await run_due(own.penstock, clock)
        await own.change(subscribed, state="paused")
        for _ in range(5):
            clock.advance(MINUTE + SECOND)
            await run_due(own.penstock, clock)
        shown = await own.show(event["id"])
        assert (shown["status"], shown["attempts"]) == ("retrying", 1)
        assert len(receiver.requests) == 1

        await own.change(subscribed, state="active")
        clock.advance(MINUTE + SECOND)
        await run_due(own.penstock, clock)

    shown = await own.show(event["id"])
    assert (shown["status"], shown["attempts"]) == ("delivered", 2)


# ----------------------------------------------------------------------------------- test events


async def test_a_test_event_goes_to_one_subscription_whatever_it_asks_for(tenant: Tenant) -> None:
    async with receiving() as receiver, receiving() as other:
        subscribed = await tenant.subscribe(receiver.url, "order.*", filter={"a": 1})
        await tenant.subscribe(other.url, "order.*")
        path = f"/subscriptions/{subscribed.id}/test"
        told = body_of(await tenant.client.post(path), 202)
        shown = await tenant.until(told["id"], "delivered")

    assert (told["is_new"], told["deliveries"]) == (True, 1)
    assert shown["type"] == "penstock.test"
    assert shown["data"] == {"subscription_id": subscribed.id}
    assert (len(receiver.requests), len(other.requests)) == (1, 0)


async def test_a_test_event_goes_to_nobody_else(tenant: Tenant) -> None:
    """Not even to those who want everything; and to those who do, once."""
    async with receiving() as receiver, receiving() as other:
        subscribed = await tenant.subscribe(receiver.url, "*")
        await tenant.subscribe(other.url, "*")
        told = body_of(await tenant.client.post(f"/subscriptions/{subscribed.id}/test"), 202)
        await tenant.until(told["id"], "delivered")

    assert told["deliveries"] == 1
    assert (len(receiver.requests), len(other.requests)) == (1, 0)


async def test_each_test_is_an_event_of_its_own(tenant: Tenant) -> None:
    async with receiving() as receiver:
        subscribed = await tenant.subscribe(receiver.url, "order.*")
        path = f"/subscriptions/{subscribed.id}/test"
        told = [body_of(await tenant.client.post(path), 202) for _ in range(2)]
        for each in told:
            await tenant.until(each["id"], "delivered")

    assert len(set(ids_of(receiver))) == 2
