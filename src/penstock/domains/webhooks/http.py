"""Webhooks over REST: events in, subscriptions, and replays."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

import msgspec
from msgspec import UNSET

from penstock.base.errors import InvalidInput
from penstock.contract.http import Call, Content, Endpoint, NoParameters, Stream, endpoint
from penstock.contract.paging import read_id, take_page
from penstock.domains.webhooks import batch, inspect, wire
from penstock.domains.webhooks.event import AcceptedEvent, NewEvent
from penstock.domains.webhooks.replay import (
    BEGINNING,
    NewReplay,
    count_replay,
    list_replays,
    read_replay,
    set_replay,
    start_replay,
)
from penstock.domains.webhooks.sample_event import send_test
from penstock.domains.webhooks.subscription import (
    STANDARD_SCHEDULE,
    NewSubscription,
    SubscriptionService,
    list_subscriptions,
    read_subscription,
)
from penstock.domains.webhooks.wire import (
    to_wire_accepted,
    to_wire_attempt,
    to_wire_delivery_page,
    to_wire_dry_run,
    to_wire_endpoint_status,
    to_wire_event,
    to_wire_event_detail,
    to_wire_replay,
    to_wire_subscription,
)
from penstock.limits.gate import Gate
from penstock.postgres.pool import Pool

EVENT_BYTES_EXTRA = 4 * 1024  # What surrounds the data of an event.
SUBSCRIPTION_NO_MAX = 2**31 - 1  # Of an integer.


class EventSink(Protocol):
    """Where single events go: into the database, or to a broker on their way there."""

    async def accept(self, event: NewEvent) -> AcceptedEvent: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """The handlers, with what they share."""

    pool: Pool
    sink: EventSink
    service: SubscriptionService
    gate: Gate
    data_bytes_max: int

    # ---------------------------------------------------------------------------- events

    async def accept(self, call: Call[NoParameters, wire.NewEvent]) -> wire.AcceptedEvent:
        """Accept an event."""
        key = call.headers.get("idempotency-key")
        event = batch.read_event(call.body, data_bytes_max=self.data_bytes_max, key=key)
        return to_wire_accepted(await self.sink.accept(event))

    async def accept_batch(self, call: Call[NoParameters, Stream]) -> Content:
        """Accept many events."""
        return await batch.answer_batch(self.pool, call.body, data_bytes_max=self.data_bytes_max)

    # --------------------------------------------------------------------- subscriptions

    async def create(
        self, call: Call[NoParameters, wire.NewSubscription]
    ) -> wire.CreatedSubscription:
        """Make a subscription."""
        async with call.connection() as db:
            made, secret = await self.service.create(db, _new(call.body), who=call.who)
        return wire.CreatedSubscription(subscription=to_wire_subscription(made), secret=secret)

    async def change(
        self, call: Call[wire.SubscriptionRef, wire.ChangedSubscription]
    ) -> wire.Subscription:
        """Change a subscription."""
        async with call.connection() as db:
            changed = await self.service.change(
                db, call.parameters.id, _changes(call.body), who=call.who
            )
        return to_wire_subscription(changed)

    async def remove(self, call: Call[wire.SubscriptionRef, None]) -> None:
        """Delete a subscription."""
        async with call.connection() as db:
            await self.service.change(db, call.parameters.id, {"state": "deleted"}, who=call.who)

    async def rotate(self, call: Call[wire.SubscriptionRef, wire.NewSecret]) -> wire.Secret:
        """Make a subscription sign with a new secret."""
        async with call.connection() as db:
            secret = await self.service.rotate_secret(
                db,
                call.parameters.id,
                secret=call.body.secret,
                scheme=call.body.scheme,
                overlap=_duration("overlap_seconds", call.body.overlap_seconds),
                who=call.who,
            )
        return wire.Secret(secret=secret)

    async def show_keys(self, call: Call[wire.SubscriptionRef, None]) -> wire.PublicKeys:
        """Show with what a subscriber verifies."""
        async with call.connection() as db:
            return wire.PublicKeys(keys=await self.service.public_keys(db, call.parameters.id))

    async def show_endpoint_status(
        self, call: Call[wire.SubscriptionRef, None]
    ) -> wire.EndpointStatus:
        """Show breaker, cooldown and calls in progress of a subscription's endpoint."""
        async with call.connection() as db:
            found = await read_subscription(db, call.parameters.id)
        return to_wire_endpoint_status(await self.gate.inspect(found.id))


# ------------------------------------------------------------------------------------ events


async def show_event(call: Call[wire.EventRef, None]) -> wire.EventDetail:
    """Show an event, its status and the first page of its deliveries."""
    limit = wire.DELIVERIES_SHOWN
    async with call.connection() as db:
        event = await inspect.read_event(db, call.parameters.tenant, call.parameters.id)
        found = await inspect.list_deliveries(db, event.number, limit=limit + 1)
    return to_wire_event_detail(event, to_wire_delivery_page(found, limit))


async def show_deliveries(call: Call[wire.DeliveryQuery, None]) -> wire.DeliveryPage:
    """Show a page of an event's deliveries."""
    query = call.parameters
    async with call.connection() as db:
        event_no = await inspect.find_event(db, query.tenant, query.id)
        found = await inspect.list_deliveries(
            db, event_no, after=_number(query.after), limit=query.limit + 1
        )
    return to_wire_delivery_page(found, query.limit)


async def show_attempts(call: Call[wire.EventRef, None]) -> wire.Attempts:
    """Show every try of every delivery of an event."""
    async with call.connection() as db:
        event = await inspect.read_event(db, call.parameters.tenant, call.parameters.id)
        found = await inspect.list_attempts(db, event)
    return wire.Attempts(attempts=[to_wire_attempt(each) for each in found])


async def list_events(call: Call[wire.EventQuery, None]) -> wire.EventPage:
    """Show a page of events."""
    query = call.parameters
    async with call.connection() as db:
        found = await inspect.list_events(
            db,
            query.tenant,
            types=None if query.type is None else [query.type],
            from_at=query.from_,
            until_at=query.until,
            before=read_id(query.after),
            limit=query.limit + 1,
        )
    page, following = take_page(found, query.limit, lambda each: each.number)
    return wire.EventPage(events=[to_wire_event(each) for each in page], next=following)


# ----------------------------------------------------------------------------- subscriptions


async def list_all(call: Call[wire.SubscriptionQuery, None]) -> wire.SubscriptionPage:
    """Show a page of subscriptions."""
    query = call.parameters
    async with call.connection() as db:
        found = await list_subscriptions(
            db,
            tenant=query.tenant,
            after=_number(query.after),
            limit=query.limit + 1,
        )
    page, following = take_page(found, query.limit, lambda each: each.number)
    return wire.SubscriptionPage(
        subscriptions=[to_wire_subscription(each) for each in page], next=following
    )


async def show(call: Call[wire.SubscriptionRef, None]) -> wire.Subscription:
    """Show a subscription."""
    async with call.connection() as db:
        return to_wire_subscription(await read_subscription(db, call.parameters.id))


async def try_out(call: Call[wire.SubscriptionRef, None]) -> wire.AcceptedEvent:
    """Send a test event to one subscription."""
    async with call.connection() as db:
        return to_wire_accepted(await send_test(db, call.parameters.id))


# ----------------------------------------------------------------------------------- replays


async def replay(call: Call[NoParameters, wire.NewReplay]) -> wire.EventReplay:
    """Send old events again, or only count them."""
    asked = NewReplay(
        subscription_id=call.body.subscription_id,
        which=call.body.which,
        event_types=call.body.event_types,
        from_at=call.body.from_ or BEGINNING,
        until_at=call.body.until,
        rate=call.body.rate,
    )
    async with call.connection() as db:
        if call.body.dry_run:
            return to_wire_dry_run(asked, await count_replay(db, asked))
        return to_wire_replay(await start_replay(db, asked, who=call.who))


async def show_replay(call: Call[wire.EventReplayRef, None]) -> wire.EventReplay:
    """Show how far a replay is."""
    async with call.connection() as db:
        return to_wire_replay(await read_replay(db, call.parameters.id))


async def change_replay(call: Call[wire.EventReplayRef, wire.ChangedReplay]) -> wire.EventReplay:
    """Pause a replay, let it go on, or end it."""
    async with call.connection() as db:
        changed = await set_replay(db, call.parameters.id, call.body.state, who=call.who)
    return to_wire_replay(changed)


async def list_all_replays(call: Call[wire.ReplayQuery, None]) -> wire.ReplayPage:
    """Show a page of replays."""
    query = call.parameters
    async with call.connection() as db:
        found = await list_replays(db, before=read_id(query.after), limit=query.limit + 1)
    page, following = take_page(found, query.limit, lambda each: each.id)
    return wire.ReplayPage(replays=[to_wire_replay(each) for each in page], next=following)


def endpoints(api: Api) -> tuple[Endpoint, ...]:
    """Return the table of endpoints."""
    return (
        endpoint(
            "POST", "/events", api.accept, scope="produce", statuses=(202,),
            summary="Accept an event with all its deliveries",
            takes_headers=("Idempotency-Key",),
            body_bytes_max=api.data_bytes_max + EVENT_BYTES_EXTRA,
        ),
        endpoint(
            "POST", "/events/batch", api.accept_batch, scope="produce",
            summary="Accept 1 to 1,000 events in one transaction, with one result for each",
            streams={"application/json": (list[wire.NewEvent], list[wire.Result])},
            body_bytes_max=batch.BODY_BYTES_MAX,
        ),
        endpoint(
            "GET", "/events", list_events, scope="read",
            summary="List a tenant's events, the newest first",
        ),
        endpoint(
            "GET", "/events/{id}", show_event, scope="read",
            summary="Show an event with its data and the first 100 of its deliveries",
        ),
        endpoint(
            "GET", "/events/{id}/deliveries", show_deliveries, scope="read",
            summary="List the deliveries of an event, one for each subscription",
        ),
        endpoint(
            "GET", "/events/{id}/attempts", show_attempts, scope="read",
            summary="Show every attempt to deliver an event, the oldest first",
        ),
        endpoint(
            "POST", "/subscriptions", api.create, scope="admin", statuses=(201,),
            summary="Create a subscription; its secret is in this response only",
        ),
        endpoint(
            "GET", "/subscriptions", list_all, scope="read",
            summary="List subscriptions, of one tenant or of all",
        ),
        endpoint("GET", "/subscriptions/{id}", show, scope="read", summary="Show a subscription"),
        endpoint(
            "PATCH", "/subscriptions/{id}", api.change, scope="admin",
            summary="Change a subscription, pause it, or make it active again",
        ),
        endpoint(
            "DELETE", "/subscriptions/{id}", api.remove, scope="admin", statuses=(204,),
            summary="Delete a subscription; its unfinished deliveries end dead",
        ),
        endpoint(
            "POST", "/subscriptions/{id}/secret", api.rotate, scope="admin", statuses=(201,),
            summary="Rotate the secret; the new one is in this response only",
        ),
        endpoint(
            "GET", "/subscriptions/{id}/public-keys", api.show_keys, scope="read",
            summary="Show the public keys of a subscription that signs with ed25519",
        ),
        endpoint(
            "GET", "/subscriptions/{id}/endpoint-status", api.show_endpoint_status, scope="read",
            summary="Show breaker, cooldown and calls in progress of a subscription's endpoint",
        ),
        endpoint(
            "POST", "/subscriptions/{id}/test", try_out, scope="admin", statuses=(202,),
            summary="Send an event of the type `penstock.test` to this subscription only",
        ),
        endpoint(
            "POST", "/replays", replay, scope="admin", statuses=(202,),
            summary="Send old events to a subscription again, or with `dry_run` count them",
        ),
        endpoint(
            "GET", "/replays", list_all_replays, scope="read",
            summary="List replays of events, the newest first",
        ),
        endpoint(
            "GET", "/replays/{id}", show_replay, scope="read",
            summary="Show the progress of a replay of events",
        ),
        endpoint(
            "PATCH", "/replays/{id}", change_replay, scope="admin",
            summary="Pause, resume or cancel a replay of events",
        ),
    )  # fmt: skip


def _number(cursor: str | None) -> int:
    """Return the number of a subscription in a cursor, 0 for the first page."""
    return min(read_id(cursor) or 0, SUBSCRIPTION_NO_MAX)


def _new(given: wire.NewSubscription) -> NewSubscription:
    return NewSubscription(
        url=given.url,
        event_types=given.event_types,
        tenant=given.tenant,
        filter=_filter(given.filter),
        ordering_key=given.ordering_key,
        description=given.description,
        profile=given.profile,
        rate_limit=given.rate_limit,
        concurrency=given.concurrency,
        timeout=_duration("timeout_seconds", given.timeout_seconds),
        retry_schedule=_schedule(given.retry_schedule_seconds),
        headers=given.headers,
        scheme=given.scheme,
        secret=given.secret,
    )


def _changes(given: wire.ChangedSubscription) -> dict[str, Any]:
    changes: dict[str, Any] = {
        name: value
        for name, value in msgspec.structs.asdict(given).items()
        if value is not UNSET and name != "filter"
    }
    if bytes(given.filter):
        changes["filter"] = _filter(given.filter)
    if "timeout_seconds" in changes:
        changes["timeout"] = _duration("timeout_seconds", changes.pop("timeout_seconds"))
    if "retry_schedule_seconds" in changes:
        changes["retry_schedule"] = _schedule(changes.pop("retry_schedule_seconds"))
    return changes


def _filter(raw: msgspec.Raw) -> str | None:
    if raw == wire.NO_FILTER:
        return None
    try:
        return bytes(raw).decode()
    except UnicodeDecodeError:
        raise InvalidInput("filter", "is not UTF-8") from None


def _schedule(given: wire.Schedule | None) -> Sequence[timedelta] | None:
    if given is None:
        return None
    if given == "standard":
        return STANDARD_SCHEDULE
    return [_duration(f"retry_schedule_seconds[{index}]", each) for index, each in enumerate(given)]


def _duration(field: str, seconds: float) -> timedelta:
    try:
        return timedelta(seconds=seconds)
    except (OverflowError, ValueError):
        raise InvalidInput(field, "is too long") from None
