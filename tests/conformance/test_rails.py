"""Every rail adapter keeps the same promises: what is not certain is never called certain."""

from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from examples.own_rail import BankRail
from penstock.base.clock import boot_seconds
from penstock.compose.rails import ClientExchange
from penstock.domains.outbox.rails.http_json import make_rail, parse_config
from penstock.domains.outbox.rails.rail import (
    NoAnswer,
    NotFound,
    NotSent,
    Rail,
    RailAnswer,
    rail_key,
    send_not_after,
)
from penstock.domains.outbox.rails.simulator.adapter import make_simulator_rail
from penstock.domains.outbox.rails.simulator.order import Order
from penstock.domains.outbox.rails.simulator.server import Simulator
from tests.domains.outbox.rails.rail_scene import instruction, loopback_exchange, simulating
from tests.ports import free_port
from tests.receiver import Close, Reply, receiving

PATIENT = timedelta(seconds=10)
SHORT = timedelta(milliseconds=100)
LONG_SECONDS = 3_600.0

Open = Callable[[str], Rail]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A bank with its ledger, a rail that leads to it, and rails that lead elsewhere."""

    bank: Simulator
    rail: Rail
    rail_to: Open

    def bookings(self) -> int:
        return self.bank.ledger.totals().bookings


def http_json(url: str, exchange: ClientExchange) -> Rail:
    config: dict[str, Any] = {
        "send": {
            "url": f"{url}/payments",
            "body": {
                "instruction_id": "{instruction_id}",
                "amount": "{amount}",
                "currency": "{currency}",
                "simulate": "{payload.simulate?}",
            },
        },
        "query": {"url": f"{url}/payments/{{key}}", "not_found": {"codes": ["NOT_FOUND"]}},
        "answer": {
            "code": ["code"],
            "reference": ["reference"],
            "amount": ["amount"],
            "currency": ["currency"],
        },
        "idempotency_header": "Idempotency-Key",
        "key_valid_for_seconds": 60,
        "not_found_is_final_after_seconds": 60,
    }
    return make_rail(parse_config(config), None, exchange=exchange)


@pytest.fixture(params=["http_json", "simulator", "own"])
async def scene(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Scene]:
    async with AsyncExitStack() as stack:
        bank, url = await stack.enter_async_context(simulating(tmp_path))
        exchange = await stack.enter_async_context(loopback_exchange())

        def open_rail(address: str) -> Rail:
            match request.param:
                case "http_json":
                    return http_json(address, exchange)
                case "simulator":
                    return make_simulator_rail({"url": address}, exchange=exchange)
                case _:
                    own = BankRail(address, None)
                    stack.push_async_callback(own.close)
                    return own

        yield Scene(bank=bank, rail=open_rail(url), rail_to=open_rail)


def test_the_properties_say_what_a_repeat_may_rely_on(scene: Scene) -> None:
    properties = scene.rail.properties

    assert properties.can_query
    assert properties.key_valid_for is not None
    assert properties.not_found_is_final_after is not None


async def test_a_send_is_booked_and_answered_with_a_code(scene: Scene) -> None:
    sent = instruction()

    got = await scene.rail.send(sent, timeout=PATIENT)

    assert got == RailAnswer(
        code="PAID", reference="sim-1", amount=Decimal("12.50"), currency="EUR"
    )
    (entry,) = scene.bank.ledger.list()
    assert (entry.key, entry.instruction_id) == (rail_key(sent), sent.instruction_id)


async def test_a_query_finds_what_was_sent(scene: Scene) -> None:
    sent = instruction()
    answer = await scene.rail.send(sent, timeout=PATIENT)

    assert await scene.rail.query(sent, timeout=PATIENT) == answer


async def test_a_query_does_not_find_what_was_never_sent(scene: Scene) -> None:
    assert await scene.rail.query(instruction(), timeout=PATIENT) == NotFound()


async def test_a_query_pays_nothing(scene: Scene) -> None:
    await scene.rail.query(instruction(), timeout=PATIENT)

    assert scene.bookings() == 0


@pytest.mark.parametrize("code", ["REJECTED", "BUSY", "AC04", "R01"])
async def test_a_refusal_is_a_code_and_moves_nothing(scene: Scene, code: str) -> None:
    scene.bank.orders.add(Order(code=code))

    got = await scene.rail.send(instruction(), timeout=PATIENT)

    assert isinstance(got, RailAnswer)
    assert got.code == code
    assert scene.bookings() == 0


@pytest.mark.parametrize(("moment", "bookings"), [("before_booking", 0), ("after_booking", 1)])
async def test_a_lost_reply_is_no_answer_and_the_query_shows_the_truth(
    scene: Scene, moment: Any, bookings: int
) -> None:
    sent = instruction()
    scene.bank.orders.add(Order(lose=moment))

    lost = await scene.rail.send(sent, timeout=PATIENT)
    found = await scene.rail.query(sent, timeout=PATIENT)

    assert isinstance(lost, NoAnswer)
    assert scene.bookings() == bookings
    assert isinstance(found, RailAnswer) if bookings else found == NotFound()


async def test_a_repeat_is_recognised_by_its_key(scene: Scene) -> None:
    sent = instruction()
    scene.bank.orders.add(Order(lose="after_booking"))

    await scene.rail.send(sent, timeout=PATIENT)
    again = await scene.rail.send(sent, timeout=PATIENT)

    assert isinstance(again, RailAnswer)
    assert again.code == "PAID"
    assert scene.bookings() == 1


async def test_two_instructions_are_two_payments(scene: Scene) -> None:
    for _ in range(2):
        await scene.rail.send(instruction(), timeout=PATIENT)

    assert scene.bookings() == 2


async def test_a_timeout_is_no_answer(scene: Scene) -> None:
    scene.bank.orders.add(Order(reply_delay_seconds=LONG_SECONDS))

    got = await scene.rail.send(instruction(), timeout=SHORT)

    assert isinstance(got, NoAnswer)


async def test_a_refused_connection_is_not_sent(scene: Scene) -> None:
    rail = scene.rail_to(f"http://127.0.0.1:{free_port()}")

    assert isinstance(await rail.send(instruction(), timeout=PATIENT), NotSent)
    assert isinstance(await rail.query(instruction(), timeout=PATIENT), NoAnswer)


async def test_a_send_after_its_last_instant_is_not_sent(scene: Scene) -> None:
    """The lease was over before the connection was open: another worker may have the item."""
    limit = send_not_after.set(boot_seconds())
    try:
        got = await scene.rail.send(instruction(), timeout=PATIENT)
    finally:
        send_not_after.reset(limit)

    assert isinstance(got, NotSent)
    assert scene.bookings() == 0


@pytest.mark.parametrize("answer", [Close(), Reply(502, b"<html>"), Reply(404, b"<html>")])
async def test_a_query_that_fails_proves_nothing(scene: Scene, answer: Close | Reply) -> None:
    """A proxy's page that counted as "not found" would pay twice."""
    async with receiving(answers=[answer]) as proxy:
        rail = scene.rail_to(proxy.url_of(proxy.host, ""))

        assert isinstance(await rail.query(instruction(), timeout=PATIENT), NoAnswer)


async def test_a_page_of_a_proxy_is_no_code_of_the_rail(scene: Scene) -> None:
    async with receiving(answers=[Reply(502, b"<html>PAID</html>")]) as proxy:
        rail = scene.rail_to(proxy.url_of(proxy.host, ""))

        assert await rail.send(instruction(), timeout=PATIENT) == RailAnswer(code="HTTP_502")


async def test_an_accepted_payment_changes_its_code_later(scene: Scene) -> None:
    sent = instruction()
    scene.bank.orders.add(Order(code="ACCEPTED"))
    await scene.rail.send(sent, timeout=PATIENT)

    scene.bank.ledger.change(rail_key(sent), "RETURNED")
    got = await scene.rail.query(sent, timeout=PATIENT)

    assert isinstance(got, RailAnswer)
    assert got.code == "RETURNED"
