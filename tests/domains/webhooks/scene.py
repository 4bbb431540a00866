"""What tests of webhooks do again and again: subscribe, send, wait, look."""

import asyncio
import itertools
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from httpx import AsyncClient, Response

from penstock import Penstock
from penstock.base.aio import spawn
from penstock.base.vault import Vault
from penstock.compose import webhooks as composed
from penstock.compose.limit_keys import LimitKeyGate
from penstock.contract import Resources, Runtime
from penstock.domains.webhooks.domain import LANE, ORDERED_LANE
from penstock.integrations.http_client import Egress
from penstock.kernel.lane import set_lane
from penstock.kernel.worker import Worker
from penstock.limits.gate import Gate
from penstock.limits.local import LocalGate
from tests.fault.waiting import until

NOWHERE = "http://127.0.0.1:9/hook"  # Nobody listens there, and nobody is to call.
JSON = {"Content-Type": "application/json"}
SECOND = timedelta(seconds=1)
POLL = timedelta(milliseconds=50)  # Retries are found by it, and tests make many.
PATIENCE = 20.0  # Seconds that a test waits for something: a busy machine needs a few.

Json = dict[str, Any]

_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscribed:
    """A subscription, and the secret that was shown once."""

    id: str
    secret: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """A tenant that belongs to one test, and so do its subscriptions and events."""

    client: AsyncClient
    penstock: Penstock
    name: str

    async def subscribe(self, url: str = NOWHERE, *types: str, **more: Any) -> Subscribed:
        """Make a subscription, to all events unless told otherwise."""
        body = {"tenant": self.name, "url": url, "event_types": types or ["*"]} | more
        made = body_of(await self.client.post("/subscriptions", json=body), 201)
        return Subscribed(id=made["subscription"]["id"], secret=made["secret"])

    async def change(self, subscription: Subscribed, **changes: Any) -> Json:
        """Change a subscription and return it."""
        path = f"/subscriptions/{subscription.id}"
        return body_of(await self.client.patch(path, json=changes))

    async def read(self, subscription: Subscribed) -> Json:
        return body_of(await self.client.get(f"/subscriptions/{subscription.id}"))

    async def endpoint_status(self, subscription: Subscribed) -> Json:
        return body_of(await self.client.get(f"/subscriptions/{subscription.id}/endpoint-status"))

    async def post(
        self,
        event_type: str = "order.paid",
        data: object = None,
        *,
        key: str | None = None,
        **more: Any,
    ) -> Response:
        """Send an event; bytes go as they are."""
        text = data if isinstance(data, bytes) else json.dumps(data).encode()
        rest = json.dumps({"type": event_type, "tenant": self.name} | more).encode()
        headers = JSON if key is None else JSON | {"Idempotency-Key": key}
        content = b'{"data":' + text + b"," + rest[1:]
        return await self.client.post("/events", content=content, headers=headers)

    async def send(
        self,
        event_type: str = "order.paid",
        data: object = None,
        *,
        key: str | None = None,
        **more: Any,
    ) -> Json:
        """Have an event accepted, and return what was said of it."""
        return body_of(await self.post(event_type, data, key=key, **more), 202)

    async def show(self, event_id: str) -> Json:
        query = {"tenant": self.name}
        return body_of(await self.client.get(f"/events/{event_id}", params=query))

    async def attempts(self, event_id: str) -> list[Json]:
        query = {"tenant": self.name}
        shown = body_of(await self.client.get(f"/events/{event_id}/attempts", params=query))
        return shown["attempts"]

    async def until(self, event_id: str, *statuses: str) -> Json:
        """Wait until an event has one of these, and return it."""
        return await self.until_shown(event_id, lambda event: event["status"] in statuses)

    async def until_shown(self, event_id: str, is_so: Callable[[Json], bool]) -> Json:
        """Wait until what is shown of an event is so, and return it."""

        async def is_reached() -> bool:
            return is_so(await self.show(event_id))

        await until(is_reached, within=PATIENCE)
        return await self.show(event_id)


def make_tenant(client: AsyncClient, penstock: Penstock) -> Tenant:
    """Return a tenant that nobody else has."""
    return Tenant(client=client, penstock=penstock, name=f"tenant-{next(_numbers)}")


@asynccontextmanager
async def working(*apps: Penstock) -> AsyncGenerator[asyncio.Event]:
    """Run a worker of each app until the block ends, or until what it yields is set."""
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for app in apps:
            worker = Worker(
                dsn=app.address,
                pool=app.pool,
                kinds=list(app.kinds.values()),
                gate=LimitKeyGate(app.resources.gate),
                log=app.log,
                meter=app.meter,
                clock=app.clock,
                poll_interval=POLL,
            )
            spawn(group, worker.run(stop))
        try:
            yield stop
        finally:
            stop.set()


@asynccontextmanager
async def opened_with(
    dsn: str, *, gate: Gate | None = None, vault: Vault | None = None, egress: Egress | None = None
) -> AsyncGenerator[Penstock]:
    """Open an app whose webhooks go through another gate, vault or egress than the usual ones."""

    def build(resources: Resources) -> Runtime:
        lent = replace(resources, gate=gate or LocalGate(), vault=vault or resources.vault)
        return composed.build(lent, egress=egress)

    async with Penstock(dsn=dsn, domains=[replace(composed.DOMAIN, build=build)]) as app:
        yield app


async def hurry(penstock: Penstock, **policy: Any) -> None:
    """Let what has failed be repeated after hundredths of a second instead of seconds."""
    faster: dict[str, Any] = {
        "backoff_base": timedelta(milliseconds=10),
        "backoff_multiplier": 1.0,
    } | policy
    async with penstock.pool.acquire() as db:
        for lane in (LANE, ORDERED_LANE):
            await set_lane(db, lane, who="test", **faster)


def body_of(response: Response, status: int = 200) -> Any:
    """Return the JSON of an answer that has to be a good one."""
    assert response.status_code == status, response.text
    return response.json()
