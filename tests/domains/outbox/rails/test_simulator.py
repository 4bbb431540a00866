"""The simulator shows what was paid: its ledger survives a kill, and it fails on order."""

import asyncio
import hmac
import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock.base.log import get_logger
from penstock.base.meter import Meter
from penstock.base.settings import settings
from penstock.base.vault import Vault
from penstock.contract import Resources
from penstock.domains.outbox.errors import NoSimulator
from penstock.domains.outbox.rails.registry import list_rails
from penstock.domains.outbox.rails.simulator.adapter import make_simulator_rail
from penstock.domains.outbox.rails.simulator.order import Order, OrderBook
from penstock.domains.outbox.rails.simulator.service import SimulatorService
from penstock.domains.outbox.rails.simulator.settings import SimulatorSettings
from penstock.postgres.pool import Pool
from tests.domains.outbox.rails.rail_scene import loopback_exchange, simulating
from tests.receiver import receiving

PATIENCE = 20.0


def payment(instruction_id: str = "pay-1", **fields: Any) -> dict[str, Any]:
    return {"instruction_id": instruction_id, "amount": "12.50", "currency": "EUR"} | fields


@asynccontextmanager
async def client_of(url: str) -> AsyncGenerator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=url, timeout=PATIENCE) as client:
        yield client


async def pay(client: httpx.AsyncClient, key: str, **fields: Any) -> httpx.Response:
    return await client.post("/payments", json=payment(**fields), headers={"Idempotency-Key": key})


async def totals(client: httpx.AsyncClient) -> dict[str, Any]:
    return (await client.get("/ledger")).json()["totals"]


async def test_a_key_is_booked_once(tmp_path: Path) -> None:
    async with simulating(tmp_path) as (_, url), client_of(url) as client:
        first, second = await pay(client, "k"), await pay(client, "k")

        assert (first.status_code, second.status_code) == (201, 200)
        assert first.json() == second.json()
        assert await totals(client) == {"bookings": 1, "instructions": 1, "repeated": {}}


async def test_a_key_with_another_amount_is_a_duplicate(tmp_path: Path) -> None:
    async with simulating(tmp_path) as (_, url), client_of(url) as client:
        await pay(client, "k")
        other = await pay(client, "k", amount="13.00")

        assert (other.status_code, other.json()["code"]) == (409, "DUPLICATE")
        assert (await totals(client))["bookings"] == 1


async def test_without_idempotency_every_request_pays(tmp_path: Path) -> None:
    """A fault test that could not see a double payment would prove nothing."""
    async with (
        simulating(tmp_path, is_idempotent=False) as (_, url),
        client_of(url) as client,
    ):
        await pay(client, "k")
        await pay(client, "k")

        assert (await totals(client))["repeated"] == {"pay-1": 2}


@pytest.mark.parametrize(("moment", "bookings"), [("before_booking", 0), ("after_booking", 1)])
async def test_a_reply_is_lost_on_order(tmp_path: Path, moment: Any, bookings: int) -> None:
    async with simulating(tmp_path) as (_, url), client_of(url) as client:
        with pytest.raises(httpx.TransportError):
            await pay(client, "k", simulate={"lose": moment})

        assert (await totals(client))["bookings"] == bookings
        again = await pay(client, "k", simulate={"lose": moment})
        assert again.json()["code"] == "PAID"
        assert (await totals(client))["bookings"] == 1


async def test_any_code_is_answered_on_order(tmp_path: Path) -> None:
    async with simulating(tmp_path) as (_, url), client_of(url) as client:
        await client.post("/orders", json={"code": "AC04", "times": 2})
        answers = [await pay(client, "k") for _ in range(3)]

        assert [each.json()["code"] for each in answers] == ["AC04", "AC04", "PAID"]
        assert (await totals(client))["bookings"] == 1


async def test_a_rejection_is_final_and_busy_is_not(tmp_path: Path) -> None:
    async with simulating(tmp_path) as (_, url), client_of(url) as client:
        busy = await pay(client, "a", simulate={"code": "BUSY"})
        rejected = [
            await pay(client, "b", instruction_id="pay-2", simulate={"code": "REJECTED"})
            for _ in range(2)
        ]

        assert busy.status_code == 503
        assert (await client.get("/payments/a")).json() == {"code": "NOT_FOUND"}
        assert [each.json()["code"] for each in rejected] == ["REJECTED", "REJECTED"]
        assert (await totals(client))["bookings"] == 0


@pytest.mark.parametrize("later", ["SETTLED", "RETURNED"])
async def test_an_accepted_payment_is_settled_or_returned_later(tmp_path: Path, later: str) -> None:
    async with simulating(tmp_path) as (_, url), client_of(url) as client:
        accepted = await pay(client, "k", simulate={"code": "ACCEPTED"})
        moved = await client.post("/settlements", json={"key": "k", "code": later})
        twice = await client.post("/settlements", json={"key": "k", "code": later})

        assert accepted.json()["code"] == "ACCEPTED"
        assert moved.json()["code"] == later
        assert twice.status_code == 404
        assert (await client.get("/payments/k")).json()["code"] == later


async def test_a_query_does_not_see_a_hidden_payment(tmp_path: Path) -> None:
    async with simulating(tmp_path) as (_, url), client_of(url) as client:
        await pay(client, "k", simulate={"hidden_seconds": 3_600})

        assert (await client.get("/payments/k")).status_code == 404
        assert (await totals(client))["bookings"] == 1


async def test_a_delayed_reply_is_already_booked(tmp_path: Path) -> None:
    async with simulating(tmp_path) as (_, url), client_of(url) as client:
        with pytest.raises(httpx.ReadTimeout):
            await client.post(
                "/payments", json=payment(simulate={"reply_delay_seconds": 3_600}), timeout=0.5
            )

        assert (await totals(client))["bookings"] == 1


async def test_a_bad_request_is_refused(tmp_path: Path) -> None:
    async with simulating(tmp_path) as (_, url), client_of(url) as client:
        answers = [
            await client.post("/payments", content=b"{"),
            await client.post("/payments", json=payment(simulate={"nonsense": 1})),
            await client.get("/ledger?after=x"),
            await client.get("/nothing"),
        ]

        assert [each.status_code for each in answers] == [400, 400, 400, 404]


async def test_the_ledger_is_paged(tmp_path: Path) -> None:
    async with simulating(tmp_path) as (_, url), client_of(url) as client:
        for number in range(5):
            await pay(client, f"k{number}", instruction_id=f"pay-{number}")
        page = (await client.get("/ledger?after=1&limit=2")).json()["payments"]

        assert [each["payment_no"] for each in page] == [2, 3]


def test_orders_are_used_up_in_their_order() -> None:
    book = OrderBook()
    book.add(Order(code="A", instruction_id="other"))
    book.add(Order(code="B", times=2))

    codes = [book.take("pay", Order(code="OWN")).code for _ in range(5)]

    assert codes == ["B", "B", "OWN", "PAID", "PAID"]
    assert book.take("other", None).code == "A"


# ------------------------------------------------------------------------ a process of its own


@asynccontextmanager
async def process(
    ledger: Path, *options: str
) -> AsyncGenerator[tuple[asyncio.subprocess.Process, str]]:
    running = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "penstock.domains.outbox.rails.simulator",
        "--ledger", str(ledger), *options,
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert running.stdout is not None
    try:
        async with asyncio.timeout(PATIENCE):
            url = (await running.stdout.readline()).decode().strip()
        yield running, url
    finally:
        if running.returncode is None:
            running.terminate()
        async with asyncio.timeout(PATIENCE):
            await running.wait()


@pytest.mark.parametrize(("moment", "bookings"), [("before_booking", 0), ("after_booking", 1)])
async def test_the_ledger_survives_a_crash(tmp_path: Path, moment: str, bookings: int) -> None:
    ledger = tmp_path / "ledger.sqlite3"
    async with process(ledger) as (crashing, url), client_of(url) as client:
        with pytest.raises(httpx.TransportError):
            await pay(client, "k", simulate={"crash": moment})
        async with asyncio.timeout(PATIENCE):
            status = await crashing.wait()

    async with process(ledger) as (_, url), client_of(url) as client:
        booked = await totals(client)
        again = await pay(client, "k")

        assert status == 137
        assert booked["bookings"] == bookings
        assert again.json()["code"] == "PAID"
        assert (await totals(client))["bookings"] == 1


async def test_a_process_can_be_without_idempotency(tmp_path: Path) -> None:
    async with (
        process(tmp_path / "l.sqlite3", "--not-idempotent") as (_, url),
        client_of(url) as client,
    ):
        await pay(client, "k")
        await pay(client, "k")

        assert (await totals(client))["repeated"] == {"pay-1": 2}


# --------------------------------------------------------------------------- inside an app


def service_on(db: Pool, **chosen: Any) -> SimulatorService:
    resources = Resources(
        pool=db, settings=settings(), vault=Vault(), log=get_logger(), meter=Meter()
    )
    return SimulatorService(resources=resources, chosen=SimulatorSettings(**chosen))


@asynccontextmanager
async def running(service: SimulatorService, db: Pool) -> AsyncGenerator[str]:
    """Run the service until the body ends, and yield the address that the rail has."""
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(service.run(stop))
        try:
            async with asyncio.timeout(PATIENCE):
                while not await is_running(service):
                    assert not task.done()
            (rail,) = await list_rails(db)
            yield rail.config["url"]
        finally:
            stop.set()


async def is_running(service: SimulatorService) -> bool:
    try:
        await service.list(after=0, limit=1)
    except NoSimulator:
        # A round trip to the database lets the service go on.
        await service.resources.pool.fetchval("SELECT 1")
        return False
    return True


async def test_a_rail_to_the_simulator_settles_at_once_if_its_config_says_so() -> None:
    url = "http://127.0.0.1:1"
    async with loopback_exchange() as exchange:
        later = make_simulator_rail({"url": url}, exchange=exchange)
        at_once = make_simulator_rail({"url": url, "is_asynchronous": False}, exchange=exchange)

    assert later.properties.is_asynchronous
    assert not at_once.properties.is_asynchronous


async def test_an_embedded_database_has_the_rail_simulator(db: Pool) -> None:
    service = service_on(db)

    async with running(service, db) as url, client_of(url) as client:
        assert url.startswith("http://127.0.0.1:")
        await pay(client, "k")
        payments, paid = await service.list(after=0, limit=10)

    assert [each.instruction_id for each in payments][-1] == "pay-1"
    assert paid.bookings >= 1
    assert await service.may_simulate(db)
    with pytest.raises(NoSimulator):
        await service.list(after=0, limit=10)


async def test_a_setting_turns_the_simulator_off(db: Pool) -> None:
    service = service_on(db, outbox_simulator=False)

    await service.run(asyncio.Event())

    assert await list_rails(db) == []
    assert not await service.may_simulate(db)


async def test_an_account_that_cannot_see_the_folder_gets_no_simulator(db: Pool) -> None:
    """On somebody's own database the rail must not exist: nothing would be paid."""
    async with db.acquire() as connection:
        await connection.execute("CREATE ROLE plain")
        await connection.execute("SET ROLE plain")

        assert not await service_on(db).may_simulate(connection)
        assert await service_on(db, outbox_simulator=True).may_simulate(connection)
        await connection.execute("RESET ROLE")
        await connection.execute("DROP ROLE plain")


async def test_the_simulator_in_an_app_does_not_crash_it(tmp_path: Path) -> None:
    async with simulating(tmp_path) as (_, url), client_of(url) as client:
        with pytest.raises(httpx.TransportError):
            await pay(client, "k", simulate={"crash": "after_booking"})

        assert (await totals(client))["bookings"] == 1


# ------------------------------------------------------------------------------ reports, later


async def test_an_accepted_payment_changes_by_itself_when_its_time_has_come(tmp_path: Path) -> None:
    async with simulating(tmp_path) as (_, url), client_of(url) as client:
        order = {"code": "ACCEPTED", "later": "RETURNED"}
        far = order | {"later_seconds": 3_600}
        accepted = await pay(client, "now", simulate=order)
        await pay(client, "far", instruction_id="pay-2", simulate=far)

        assert accepted.json()["code"] == "ACCEPTED"
        assert (await client.get("/payments/now")).json()["code"] == "RETURNED"
        assert (await client.get("/payments/far")).json()["code"] == "ACCEPTED"


async def test_a_settlement_is_reported_with_a_signature(tmp_path: Path) -> None:
    async with (
        receiving(answers=[202]) as receiver,
        simulating(tmp_path) as (_, url),
        client_of(url) as client,
    ):
        await pay(client, "k", outbox_id="o-1", simulate={"code": "ACCEPTED"})
        report = {"url": receiver.url_of(receiver.host, "/outbox/results"), "secret": "s"}
        settled = {"key": "k", "code": "SETTLED", "report": report}
        answer = await client.post("/settlements", json=settled)

    (request,) = receiver.requests
    at, digest = request.headers["penstock-signature"].split(",")
    signed = at.removeprefix("t=").encode() + b"." + request.body
    assert answer.status_code == 200
    assert request.path == "/outbox/results"
    assert digest == "v1=" + hmac.new(b"s", signed, "sha256").hexdigest()
    assert json.loads(request.body) == {
        "rail_type": "simulator",
        "outbox_id": "o-1",
        "amount": "12.50",
        "currency": "EUR",
        "reference": "sim-1",
        "status": "settled",
        "code": "SETTLED",
    }


@pytest.mark.parametrize(
    "request_head",
    [
        "nonsense",
        "GET /ledger",
        "GET http://[ HTTP/1.1",
        "POST /payments HTTP/1.1\r\nContent-Length: many",
        "POST /payments HTTP/1.1\r\nContent-Length: -1",
        "POST /payments HTTP/1.1\r\nTransfer-Encoding: chunked",
    ],
)
async def test_a_malformed_request_is_answered_and_its_connection_closed(
    tmp_path: Path, request_head: str
) -> None:
    """Where the next request of the connection would begin is unknown."""
    async with simulating(tmp_path) as (_, url):
        reader, writer = await asyncio.open_connection("127.0.0.1", httpx.URL(url).port)
        writer.write(f"{request_head}\r\n\r\n".encode())

        answer = await asyncio.wait_for(reader.read(), PATIENCE)

        writer.close()
        assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")
        assert b'"code":"INVALID"' in answer
