"""What tests of the API do again and again."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, cast

import msgspec
from httpx import ASGITransport, AsyncBaseTransport, AsyncClient, Response
from starlette.types import ASGIApp

from penstock import Item, Money, Penstock
from penstock.api import endpoints
from penstock.base.log import get_logger
from penstock.base.meter import Meter
from penstock.base.settings import Settings
from penstock.base.vault import Vault
from penstock.compose.domains import BUILT_IN
from penstock.contract import Resources
from penstock.contract.http import Endpoint
from penstock.kernel.api_keys import create_key
from penstock.kernel.claim import Cursor, Lease, claim
from penstock.kernel.inspect import Balance, balance
from penstock.kernel.item import Ending
from penstock.kernel.lane import create_lane, read_lane
from penstock.kernel.settle import Ended, settle

# Those of `opened`, and those that are built in.
LANES = [
    "payment",
    "payments",
    "penstock.mail",
    "penstock.mail.bulk",
    "penstock.outbox",
    "penstock.webhooks",
    "penstock.webhooks.ordered",
    "penstock.webhooks.replay",
    "work",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Callers:
    """One client per scope, and one without a key."""

    admin: AsyncClient
    producer: AsyncClient
    reader: AsyncClient
    stranger: AsyncClient


class Payment(msgspec.Struct):
    """What the lane `payments` takes."""

    amount: Money


def all_endpoints() -> Sequence[Endpoint]:
    """Return the whole table, domains' included, to be read: without a database none works."""
    resources = Resources(
        pool=cast("Any", None),
        settings=Settings(),
        vault=Vault(),
        log=get_logger(),
        meter=Meter(),
    )
    runtimes = [domain.build(resources) for domain in BUILT_IN]
    theirs = tuple(each for runtime in runtimes for each in runtime.endpoints)
    return endpoints(Penstock(endpoints=theirs))


@asynccontextmanager
async def opened(dsn: str) -> AsyncGenerator[Penstock]:
    """Open an app with a lane of plain JSON, `work`, and a typed one, `payments`."""
    app = Penstock(dsn=dsn)

    @app.handler("payments")
    async def pay(item: Item[Payment]) -> None:
        raise AssertionError(f"no worker runs here, yet {item.id} was handled")

    async with app:
        async with app.pool.acquire() as db:
            await create_lane(db, "work", who="test")
        yield app


@asynccontextmanager
async def called(app: Penstock, api: ASGIApp) -> AsyncGenerator[Callers]:
    """Make a key for each scope and a client that uses it."""
    tokens: dict[str, str] = {}
    async with app.pool.acquire() as db:
        for scope in ("admin", "produce", "read"):
            _, tokens[scope] = await create_key(db, scope, [scope], who="test")
    transport = ASGITransport(api, raise_app_exceptions=False)
    async with (
        caller(transport, tokens["admin"]) as admin,
        caller(transport, tokens["produce"]) as producer,
        caller(transport, tokens["read"]) as reader,
        caller(transport, None) as stranger,
    ):
        yield Callers(admin=admin, producer=producer, reader=reader, stranger=stranger)


def caller(
    transport: AsyncBaseTransport, token: str | None
) -> AbstractAsyncContextManager[AsyncClient]:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    return AsyncClient(transport=transport, base_url="http://penstock.test", headers=headers)


async def accept(client: AsyncClient, lane: str = "work", **item: Any) -> int:
    """Have an item accepted and return its id."""
    response = await client.post("/items", json={"lane": lane, "payload": {"n": 1}} | item)
    assert response.status_code == 202, response.text
    return response.json()["id"]


async def claim_all(app: Penstock, lane: str = "work") -> Lease:
    """Take every due item of a lane, as a worker would."""
    async with app.pool.acquire() as db:
        found = await read_lane(db, lane)
        lease = await claim(db, found.lane_id, Cursor(), limit=1_000, worker="test")
    assert isinstance(lease, Lease)
    return lease


async def end_all(app: Penstock, ending: Ending, lane: str = "work") -> None:
    """Take every due item of a lane and let its attempt end in one way."""
    lease = await claim_all(app, lane)
    ended = [Ended(claimed, ending, 7) for claimed in lease.items]
    async with app.pool.acquire() as db, db.transaction():
        assert await settle(db, await read_lane(db, lane), lease, ended=ended, closes=True)


async def count_items(app: Penstock) -> Balance:
    """Count every item in the database."""
    return await balance(app.pool)


def problem(response: Response, status: int, code: str) -> dict[str, Any]:
    """Return a problem, having checked what every problem has."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    told: dict[str, Any] = response.json()
    assert told["type"] == f"urn:penstock:problem:{code}"
    assert told["status"] == status
    assert told["title"]
    assert told["detail"]
    assert told["request_id"] == response.headers["x-request-id"]
    return told
