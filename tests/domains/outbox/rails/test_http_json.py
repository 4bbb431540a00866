"""The HTTP rail never guesses: what it cannot read for sure is unknown, and never "not paid"."""

import json
import ssl
from collections.abc import AsyncGenerator
from datetime import timedelta
from decimal import Decimal
from typing import Any

import msgspec
import pytest
import trustme

from penstock.base.errors import InvalidInput
from penstock.compose.rails import ClientExchange
from penstock.domains.outbox.rails.http_json import HttpJsonRail, make_rail, parse_config
from penstock.domains.outbox.rails.rail import NoAnswer, NotFound, NotSent, RailAnswer, rail_key
from penstock.integrations.http_client import Client, Egress
from tests.domains.outbox.rails.rail_scene import instruction, loopback_exchange
from tests.ports import free_port
from tests.receiver import Close, Hang, Raw, Reply, receiving

PATIENT = timedelta(seconds=10)
SHORT = timedelta(milliseconds=50)


def config(url: str, **changes: Any) -> dict[str, Any]:
    return {
        "send": {
            "url": f"{url}/transfers",
            "headers": {"X-Version": "2"},
            "body": {
                "endToEndId": "{instruction_id}",
                "amount": {"value": "{amount}", "minor": "{amount_minor}", "ccy": "{currency}"},
                "to": "{destination}",
                "bic": "{destination.bic?}",
                "kind": "credit",
                "tags": ["a", "{participant_id}"],
            },
        },
        "query": {
            "url": f"{url}/transfers/{{key}}",
            "not_found": {"codes": ["UNKNOWN_TRANSFER"]},
        },
        "answer": {
            "code": ["result", "status"],
            "reason": {"path": ["result", "reasons", 0, "code"], "when": ["RJCT"]},
            "reference": ["id"],
            "message": ["result", "text"],
            "amount": ["amount"],
            "currency": ["ccy"],
        },
        "idempotency_header": "Idempotency-Key",
        "key_valid_for_seconds": 3600,
        "not_found_is_final_after_seconds": 60,
    } | changes


def answer(status: int, **document: Any) -> Reply:
    return Reply(status, json.dumps(document).encode())


@pytest.fixture
async def exchange() -> AsyncGenerator[ClientExchange]:
    async with loopback_exchange() as opened:
        yield opened


def rail_to(url: str, exchange: ClientExchange, **changes: Any) -> HttpJsonRail:
    return make_rail(parse_config(config(url, **changes)), "s3cret", exchange=exchange)


async def test_a_send_fills_the_template_and_reads_the_answer(exchange: ClientExchange) -> None:
    sent = instruction(destination={"iban": "DE89"})
    reply = Reply(201, b'{"id": 77, "result": {"status": "ACSC"}, "amount": 12.10, "ccy": "EUR"}')

    async with receiving(answers=[reply]) as bank:
        got = await rail_to(bank.url_of(bank.host, ""), exchange).send(sent, timeout=PATIENT)

    (request,) = bank.requests
    assert got == RailAnswer(code="ACSC", reference="77", amount=Decimal("12.10"), currency="EUR")
    assert (request.method, request.path) == ("POST", "/transfers")
    assert request.headers["authorization"] == "Bearer s3cret"
    assert request.headers["x-version"] == "2"
    assert request.headers["idempotency-key"] == rail_key(sent)
    assert json.loads(request.body) == {
        "endToEndId": sent.instruction_id,
        "amount": {"value": "12.50", "minor": 1250, "ccy": "EUR"},
        "to": {"iban": "DE89"},
        "kind": "credit",
        "tags": ["a", "acme"],
    }


async def test_every_attempt_has_the_same_key_and_body(exchange: ClientExchange) -> None:
    """A key with the number of the attempt in it would let each attempt pay."""
    sent = instruction()

    async with receiving(answers=[503]) as bank:
        rail = rail_to(bank.url_of(bank.host, ""), exchange)
        for _ in range(3):
            await rail.send(sent, timeout=PATIENT)

    assert len({request.headers["idempotency-key"] for request in bank.requests}) == 1
    assert len({request.body for request in bank.requests}) == 1


async def test_fields_inside_texts_and_headers_are_filled(exchange: ClientExchange) -> None:
    """Sent as they are, two instructions would have one key: the second would never be paid."""
    sent = [instruction(), instruction()]

    async with receiving() as bank:
        rail = rail_to(
            bank.url_of(bank.host, ""),
            exchange,
            send={
                "url": f"{bank.url_of(bank.host, '')}/of-{{participant_id}}/{{instruction_id}}",
                "headers": {"X-Request": "pay-{key}", "X-Number": "{sequence_id}"},
                "body": {
                    "ref": "ACME-{instruction_id}",
                    "list": ["{currency} {amount}", "k-{key}"],
                },
            },
        )
        for each in sent:
            await rail.send(each, timeout=PATIENT)

    for each, request in zip(sent, bank.requests, strict=True):
        key = rail_key(each)
        assert request.path == f"/of-acme/{each.instruction_id}"
        assert request.headers["x-request"] == f"pay-{key}"
        assert request.headers["x-number"] == str(each.sequence_id)
        assert json.loads(request.body) == {
            "ref": f"ACME-{each.instruction_id}", "list": ["EUR 12.50", f"k-{key}"],
        }  # fmt: skip


async def test_the_headers_of_a_query_are_filled(exchange: ClientExchange) -> None:
    asked = instruction()

    async with receiving(answers=[Reply(200, b"{}")]) as bank:
        url = bank.url_of(bank.host, "")
        query = {
            "url": f"{url}/status",
            "headers": {"X-Key": "{key}"},
            "not_found": {"codes": ["UNKNOWN_TRANSFER"]},
        }
        await rail_to(url, exchange, query=query).query(asked, timeout=PATIENT)

    assert bank.requests[0].headers["x-key"] == rail_key(asked)


async def test_what_a_producer_wrote_is_not_a_template(exchange: ClientExchange) -> None:
    """Braces in a value are part of the value, and stay a part of the field that they are in."""
    given = '{key}", "amount": "999'

    async with receiving() as bank:
        url = bank.url_of(bank.host, "")
        send = {"url": f"{url}/x?note={{payload.note}}", "body": {"note": "n: {payload.note}"}}
        await rail_to(url, exchange, send=send).send(instruction(note=given), timeout=PATIENT)

    (request,) = bank.requests
    assert request.path == "/x?note=%7Bkey%7D%22%2C%20%22amount%22%3A%20%22999"
    assert json.loads(request.body) == {"note": f"n: {given}"}


@pytest.mark.parametrize(
    ("note", "send"),
    [
        ("a\r\nX-Amount: 1", {"headers": {"X-Note": "n {payload.note}"}}),
        ("a\r\nX-Amount: 1", {"headers": {"X-Note": "{payload.note}"}}),
        ("Zoë", {"headers": {"X-Note": "{payload.note}"}}),
        ({"a": 1}, {"headers": {"X-Note": "{payload.note}"}}),
        ({"a": 1}, {"body": {"note": "n {payload.note}"}}),
        (True, {"body": {"note": "n {payload.note}"}}),
        ("..", {"path": "{payload.note}/x"}),
    ],
    ids=["lines", "only lines", "not ASCII", "object", "object in a text", "boolean", "dots"],
)
async def test_a_value_that_does_not_fit_its_place_stops_the_send(
    exchange: ClientExchange, note: object, send: dict[str, Any]
) -> None:
    async with receiving() as bank:
        url = bank.url_of(bank.host, "")
        whole = {"body": {}, "url": f"{url}/{send.get('path', '')}"} | send
        whole.pop("path", None)
        got = await rail_to(url, exchange, send=whole).send(instruction(note=note), timeout=PATIENT)

    assert isinstance(got, NotSent)
    assert bank.requests == []


def test_two_instructions_with_one_key_of_the_producer_have_two_keys_at_the_rail() -> None:
    """Keys of producers are unique per instruction only; the second one would not be paid."""
    keys = {
        rail_key(msgspec.structs.replace(instruction(), idempotency_key="same")) for _ in range(2)
    }

    assert len(keys) == 2


@pytest.mark.covers("E37")
@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (answer(200, result={"status": "RJCT", "reasons": [{"code": "AC04"}]}), "AC04"),
        (answer(422, result={"status": "RJCT", "reasons": []}), "RJCT"),
        # A reason counts with a rejection only: a pending payment has reasons too.
        (answer(200, result={"status": "PDNG", "reasons": [{"code": "AC04"}]}), "PDNG"),
        (answer(200, result={"status": 17}), "17"),
        (answer(200, result={"status": "the account AC04 is closed " * 10}), "HTTP_200"),
        (answer(200, result="RJCT"), "HTTP_200"),
        (Reply(503, b"<html>RJCT</html>"), "HTTP_503"),
        (Reply(200, b""), "HTTP_200"),
        (Reply(302, b"", {"Location": "http://127.0.0.1:1/"}), "HTTP_302"),
        (Reply(200, b"[" * 5_000), "HTTP_200"),
        (Reply(200, b'{"result": {"status": "ACSC"}}' + b" " * 100_000), "HTTP_200"),
    ],
)
async def test_a_code_is_read_from_its_place_or_is_the_status(
    exchange: ClientExchange, reply: Reply, code: str
) -> None:
    async with receiving(answers=[reply]) as bank:
        got = await rail_to(bank.url_of(bank.host, ""), exchange).send(
            instruction(), timeout=PATIENT
        )

    assert isinstance(got, RailAnswer)
    assert got.code == code


async def test_a_rail_that_cannot_be_reached_has_not_received_it(exchange: ClientExchange) -> None:
    refused = await rail_to(f"http://127.0.0.1:{free_port()}", exchange).send(
        instruction(), timeout=PATIENT
    )

    assert isinstance(refused, NotSent)


async def test_a_failed_tls_handshake_proves_that_nothing_was_sent(
    exchange: ClientExchange,
) -> None:
    """The certificate is of an authority that nobody here trusts."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(tls)

    async with receiving(tls=tls) as bank:
        got = await rail_to(bank.url_of(bank.host, ""), exchange).send(
            instruction(), timeout=PATIENT
        )

    assert isinstance(got, NotSent)
    assert bank.requests == []


@pytest.mark.parametrize(
    "failing",
    [Close(), Close(is_reset=True), Raw([b"HTTP/1.1 201 Cr"]), Raw([b"nonsense\r\n\r\n"])],
)
async def test_a_lost_answer_is_no_answer(exchange: ClientExchange, failing: Close | Raw) -> None:
    """The rail may have paid: it must never count as not sent."""
    async with receiving(answers=[failing]) as bank:
        got = await rail_to(bank.url_of(bank.host, ""), exchange).send(
            instruction(), timeout=PATIENT
        )

    assert isinstance(got, NoAnswer)


@pytest.mark.covers("E36")
async def test_a_timeout_is_no_answer(exchange: ClientExchange) -> None:
    async with receiving(answers=[Hang()]) as bank:
        got = await rail_to(bank.url_of(bank.host, ""), exchange).send(instruction(), timeout=SHORT)

    assert isinstance(got, NoAnswer)


async def test_a_field_that_the_instruction_lacks_stops_the_send(exchange: ClientExchange) -> None:
    async with receiving() as bank:
        rail = rail_to(
            bank.url_of(bank.host, ""),
            exchange,
            send={"url": bank.url, "body": {"to": "{destination.iban}"}},
            idempotency_header="Key",
        )
        got = await rail.send(instruction(destination={"account": "1"}), timeout=PATIENT)

    assert got == NotSent("config.send.body.to: the instruction has no destination.iban")
    assert bank.requests == []


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (answer(200, id="r1", result={"status": "ACSC"}), RailAnswer(code="ACSC", reference="r1")),
        (answer(404, result={"status": "UNKNOWN_TRANSFER"}), NotFound()),
        # These are about the query, not about the money.
        (Reply(404, b"<html>no route</html>"), None),
        (answer(404, result={"status": "NO_SUCH_PATH"}), None),
        (answer(401, result={"status": "UNKNOWN_TRANSFER"}), None),
        (answer(429, result={"status": "BUSY"}), None),
        (answer(500, result={"status": "RJCT"}), None),
        (Reply(200, b"{}"), None),
        (Close(), None),
    ],
)
async def test_a_query_answers_only_if_the_rail_clearly_does(
    exchange: ClientExchange, reply: Reply | Close, expected: object
) -> None:
    """A 404 of a proxy that counted as "never arrived" would pay twice."""
    asked = instruction()

    async with receiving(answers=[reply]) as bank:
        got = await rail_to(bank.url_of(bank.host, ""), exchange).query(asked, timeout=PATIENT)

    assert bank.requests[0].path == f"/transfers/{rail_key(asked)}"
    assert isinstance(got, NoAnswer) if expected is None else got == expected


async def test_an_address_inside_is_refused_by_the_egress_rules() -> None:
    async with Client(Egress(())) as client:
        with pytest.raises(InvalidInput, match=r"config\.send\.url"):
            rail_to("http://127.0.0.1:1", ClientExchange(client))


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"send": {"url": "https://x/{secret}", "body": {}}}, "config.send.url"),
        ({"send": {"url": "file:///etc/passwd", "body": {}}}, "config.send.url"),
        ({"send": {"url": "https://x/", "body": {"a": ["{attempt}"]}}}, "config.send.body.a"),
        ({"query": {"url": "https://x/{nonsense}"}}, "config.query.url"),
        ({"idempotency_header": None, "send": {"url": "https://x/", "body": {}}},
         "config.key_valid_for_seconds"),
        ({"idempotency_header": None,
          "send": {"url": "https://x/", "body": {"id": "{instruction_id}"}}},
         "config.key_valid_for_seconds"),
        ({"send": {"url": "https://x/", "body": {}, "headers": {"idempotency-key": "{key}"}}},
         "config.idempotency_header"),
        ({"send": {"url": "https://x/", "body": {"a": "{Key}"}}}, "config.send.body.a"),
        ({"send": {"url": "https://x/", "body": {"a": "{{key}}"}}}, "config.send.body.a"),
        ({"send": {"url": "https://x/", "body": {"a": "x {key"}}}, "config.send.body.a"),
        ({"send": {"url": "https://x/", "body": {"{key}": "x"}}}, "config.send.body.{key}"),
        ({"send": {"url": "https://x/", "body": {"a": "x {destination.bic?}"}}},
         "config.send.body.a"),
        ({"send": {"url": "https://x/{destination.bic?}", "body": {}}}, "config.send.url"),
        ({"send": {"url": "https://x/", "body": {}, "headers": {"X": "{secret}"}}},
         "config.send.headers.X"),
        ({"send": {"url": "https://x/", "body": {}, "headers": {"X": "a\r\nb"}}},
         "config.send.headers.X"),
        ({"send": {"url": "https://x/", "body": {}, "headers": {"{key}": "a"}}},
         "config.send.headers.{key}"),
        ({"idempotency_header": "Bad Name"}, "config.idempotency_header"),
        ({"query": {"url": "https://x/{instruction_id}", "not_found": {"codes": ["N"]}}},
         "config.query"),
        ({"query": {"url": "https://x/", "headers": {"X": "{attempt}"}}},
         "config.query.headers.X"),
        ({"query": {"url": "https://x/{outbox_id}", "not_found": {"codes": ["N"]}}},
         "config.query"),
        ({"query": {"url": "https://x/{key}"}}, "config.not_found_is_final_after_seconds"),
        ({"query": None}, "config.not_found_is_final_after_seconds"),
        ({"nonsense": 1}, "config"),
        ({"answer": {}}, "config"),
    ],
)  # fmt: skip
def test_a_config_that_could_pay_twice_is_refused(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_config(config("https://x", **changes))

    assert refused.value.field == field


def test_a_config_declares_the_properties_of_the_rail() -> None:
    """A rail whose config promises nothing has no promise that a re-send may rely on."""
    bare = {"send": {"url": "https://x/", "body": {}}, "answer": {"code": ["c"]}}
    rail = HttpJsonRail(config=parse_config(bare), exchange=None, headers=())  # pyright: ignore[reportArgumentType]
    full = HttpJsonRail(config=parse_config(config("https://x")), exchange=None, headers=())  # pyright: ignore[reportArgumentType]

    assert rail.properties.key_valid_for is None
    assert rail.properties.not_found_is_final_after is None
    assert not rail.properties.can_query
    assert full.properties.key_valid_for == timedelta(hours=1)
    assert full.properties.not_found_is_final_after == timedelta(minutes=1)
    assert full.properties.can_query
