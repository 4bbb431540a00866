"""The receiver of `penstock listen` in this process: what it accepts and what it prints."""

import asyncio
import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from io import BytesIO, TextIOWrapper

import msgspec
import pytest
from rich.console import Console

from penstock.domains.webhooks.commands.listen.received import Received
from penstock.domains.webhooks.commands.listen.server import (
    BODY_BYTES_MAX,
    HEAD_BYTES_MAX,
    receiving,
)
from penstock.domains.webhooks.commands.listen.view import (
    BODY_LENGTH_MAX,
    Verifier,
    as_record,
    read_key,
    show,
)
from penstock.domains.webhooks.secret import (
    Ed25519Secret,
    Profile,
    make_secret,
    public_key,
    read_secret,
)
from penstock.domains.webhooks.sign import Signer
from tests.cli.conftest import Cli

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
GOOD = b"POST /good HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"
CHUNKED = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"

# --------------------------------------------------------------------------------------- server


@dataclass(slots=True, kw_only=True)
class Place:
    """A receiver, its requests, and raw connections to it."""

    port: int
    requests: list[Received] = field(default_factory=list[Received])

    async def ask(self, *parts: bytes, responses: int = 1) -> bytes:
        """Send parts one after another and return this many responses, which have no body."""
        async with self._connected() as (reader, writer):
            for part in parts:
                writer.write(part)
                await writer.drain()
            return b"".join([await reader.readuntil(b"\r\n\r\n") for _ in range(responses)])

    async def send(self, *parts: bytes, ends: bool = True) -> bytes:
        """Send parts and return everything until the server closes; `ends` closes our side."""
        try:
            async with self._connected() as (reader, writer):
                for part in parts:
                    writer.write(part)
                    await writer.drain()
                if ends:
                    writer.write_eof()
                return await reader.read()
        except ConnectionError:
            return b""

    @asynccontextmanager
    async def _connected(
        self,
    ) -> AsyncGenerator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            async with asyncio.timeout(10):
                yield reader, writer
        finally:
            writer.close()


@asynccontextmanager
async def place(status: int = 200) -> AsyncGenerator[Place]:
    requests: list[Received] = []

    def answer(received: Received) -> int:
        requests.append(received)
        return status

    async with receiving(answer, host="127.0.0.1", port=0) as url:
        yield Place(port=int(url.rstrip("/").rpartition(":")[2]), requests=requests)


async def test_a_request_is_received_completely_and_answered() -> None:
    async with place(503) as here:
        said = await here.ask(GOOD.replace(b"/good", b"/good%20?a=%31"))

    assert said == b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n"
    (taken,) = here.requests
    assert (taken.method, taken.path, taken.body) == ("POST", "/good%20?a=%31", b"{}")
    assert taken.headers == {"host": "x", "content-length": "2"}


async def test_requests_of_one_connection_are_answered_in_order() -> None:
    """Clients reuse connections, and some send before the response arrives."""
    async with place() as here:
        pipelined = GOOD + GOOD.replace(b"good", b"two") + GOOD.replace(b"good", b"3")
        whole = await here.ask(pipelined, responses=3)
        torn = await here.ask(*(GOOD[place : place + 1] for place in range(len(GOOD))))

    assert whole == 3 * OK
    assert torn == OK
    assert [each.path for each in here.requests] == ["/good", "/two", "/3", "/good"]


@pytest.mark.parametrize("length", [0, 1, 70_000])
async def test_a_chunked_body_is_joined(length: int) -> None:
    chunk = b"%x\r\n%b\r\n" % (length, b"x" * length) if length else b""

    async with place() as here:
        assert await here.ask(CHUNKED + chunk + b"0\r\nX-Trailer: 1\r\n\r\n") == OK

    assert here.requests[0].body == b"x" * length


async def test_a_client_that_expects_100_continue_gets_it() -> None:
    head = GOOD.replace(b"Host: x", b"Host: x\r\nExpect: 100-Continue").removesuffix(b"{}")

    async with place() as here:
        assert await here.ask(head) == b"HTTP/1.1 100 Continue\r\n\r\n"
        assert await here.ask(head, b"{}", responses=2) == b"HTTP/1.1 100 Continue\r\n\r\n" + OK


async def test_repeated_headers_are_joined_with_commas() -> None:
    async with place() as here:
        await here.ask(GOOD.replace(b"Host: x", b"Host: x\r\nX-A: 1\r\nx-a: 2"))

    assert here.requests[0].headers["x-a"] == "1, 2"


async def test_a_status_that_has_no_body_has_no_length() -> None:
    async with place(204) as here:
        assert await here.ask(GOOD) == b"HTTP/1.1 204 No Content\r\n\r\n"


GARBAGE = {
    "nothing": b"",
    "no HTTP": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "zeros": bytes(10_000),
    "no host": GOOD.replace(b"Host", b"Hast"),
    "a line": b"hello\r\n\r\n",
    "half a head": b"POST / HTTP/1.1\r\nHost",
    "half a body": GOOD[:-1],
    "a version that cannot be": b"POST / HTTP/9.9\r\n\r\n",
    "a method that cannot be": b"P\xffST / HTTP/1.1\r\n\r\n",
    "a length that is none": GOOD.replace(b": 2", b": two"),
    "a length below nothing": GOOD.replace(b": 2", b": -2"),
    "a length without end": GOOD.replace(b": 2", b": " + b"9" * 100),
    "two lengths": GOOD.replace(b"Host: x", b"Host: x\r\nContent-Length: 3"),
    "a length and chunks": GOOD.replace(b"Host: x", b"Host: x\r\nTransfer-Encoding: chunked"),
    "a chunk that is none": CHUNKED + b"zz\r\n",
    "a header that is none": b"POST / HTTP/1.1\r\nHost: x\r\n: x\r\n\r\n",
    "a long path": b"POST /" + b"x" * (HEAD_BYTES_MAX + 100),
    "a long header": b"POST / HTTP/1.1\r\nHost: x\r\nX: " + b"x" * (HEAD_BYTES_MAX + 100),
    "many headers": b"POST / HTTP/1.1\r\nHost: x\r\n" + b"x: y\r\n" * 20_000,
    "trailers without end": CHUNKED + b"0\r\n" + b"x: y\r\n" * 20_000,
    "a tunnel": b"CONNECT example.com:443 HTTP/1.1\r\nHost: x\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
}


@pytest.mark.parametrize("sent", GARBAGE.values(), ids=GARBAGE)
async def test_garbage_ends_its_own_connection_and_nothing_else(sent: bytes) -> None:
    """An open port receives anything."""
    async with place() as here:
        said = await here.send(sent)

        assert said == b"" or said.startswith(b"HTTP/1.1 ")
        assert await here.ask(GOOD) == OK
        assert here.requests[-1].path == "/good"


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (GOOD.replace(b": 2", b": %d" % (BODY_BYTES_MAX + 1))[:-2], 413),
        (b"POST / HTTP/1.1\r\nHost: x\r\nX: " + b"x" * HEAD_BYTES_MAX, 400),
        (b"hello\r\n\r\n", 400),
        (b"CONNECT example.com:443 HTTP/1.1\r\nHost: x\r\n\r\n", 501),
    ],
)
async def test_a_refused_request_gets_a_status_and_the_connection_is_closed(
    sent: bytes, status: int
) -> None:
    async with place() as here:
        said = await here.send(sent, ends=False)

    assert said.startswith(b"HTTP/1.1 %d " % status)
    assert b"connection: close\r\n" in said.lower()
    assert not here.requests


async def test_an_offer_to_upgrade_is_ignored() -> None:
    """Curl --http2 offers h2c with every request, and speaks HTTP/1.1 if nobody accepts."""
    offer = b"Host: x\r\nConnection: Upgrade\r\nUpgrade: h2c"

    async with place() as here:
        assert await here.ask(GOOD.replace(b"Host: x", offer)) == OK

    assert here.requests[0].body == b"{}"


async def test_a_connection_in_the_middle_of_a_request_does_not_delay_the_end() -> None:
    """Ctrl-C must end the command although a client has stopped sending."""
    loop = asyncio.get_running_loop()
    async with place() as here:
        reader, writer = await asyncio.open_connection("127.0.0.1", here.port)
        writer.write(GOOD[:-1].replace(b"Host: x", b"Host: x\r\nExpect: 100-continue"))
        await reader.readuntil(b"\r\n\r\n")
        ended_at = loop.time()

    assert loop.time() - ended_at < 5
    writer.close()


def test_without_uvicorn_the_extra_is_named(bare_cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "penstock.domains.webhooks.commands.listen.server")
    monkeypatch.setitem(sys.modules, "uvicorn", None)

    ended = bare_cli("listen")

    assert (ended.code, ended.err) == (
        4,
        "penstock: penstock listen needs: pip install 'penstock[api]'\n",
    )


async def test_a_chunked_body_that_grows_too_long_is_not_kept() -> None:
    chunk = b"100000\r\n" + b"x" * 0x10_0000 + b"\r\n"

    async with place() as here:
        said = await here.send(CHUNKED, *[chunk] * (BODY_BYTES_MAX // 0x10_0000 + 2))

        assert said == b"" or said.startswith(b"HTTP/1.1 413 ")
        assert not here.requests


# ----------------------------------------------------------------------------------------- view


def request(body: bytes = b"{}", headers: dict[str, str] | None = None) -> Received:
    return Received(received_at=NOW, method="POST", path="/hook", headers=headers or {}, body=body)


def signed(body: bytes, secret: str, *, profile: Profile = "standard") -> Received:
    """Return a request as Penstock would have sent it."""
    signer = Signer(profile, [read_secret(secret, profile)])
    lines = signer.headers("evt_1", int(NOW.timestamp()), body).decode().split("\r\n")
    pairs = (line.split(": ", 1) for line in lines if line)
    return request(body, {name.lower(): value for name, value in pairs})


def shown(received: Received, *, status: int = 200, encoding: str = "utf-8") -> str:
    """Return what is printed for people of a request that is not verified."""
    written = BytesIO()
    file = TextIOWrapper(written, encoding=encoding)
    show(
        Verifier(profile="standard", secrets=[]).check(received, status),
        Console(file=file, width=40),
    )
    return written.getvalue().decode(encoding)


@pytest.mark.parametrize("profile", ["standard", "svix", "github", "stripe"])
def test_signatures_of_penstock_are_verified(profile: Profile) -> None:
    secret = make_secret()
    body = b'{"id":"evt_1","type":"order.paid","data":{"n":1.0}}'
    verifier = Verifier(profile=profile, secrets=[read_key(secret, profile)])

    good = verifier.check(signed(body, secret, profile=profile), 200)
    forged = verifier.check(signed(body, make_secret(), profile=profile), 200)
    bare = verifier.check(request(body), 200)

    assert (good.verdict, good.detail) == ("verified", None)
    assert (good.event_id, good.event_type) == ("evt_1", "order.paid")
    assert forged.verdict == "mismatch"
    assert bare.verdict == "missing"


def test_a_public_key_is_enough() -> None:
    secret = make_secret("ed25519")
    pair = read_secret(secret, "standard")
    assert isinstance(pair, Ed25519Secret)
    verifier = Verifier(profile="standard", secrets=[read_key(public_key(pair), "standard")])

    assert verifier.check(signed(b"{}", secret), 200).verdict == "verified"
    assert verifier.check(signed(b"{}", make_secret("ed25519")), 200).verdict == "mismatch"


def test_attempts_of_one_message_are_counted() -> None:
    verifier = Verifier(profile="standard", secrets=[])
    first, second = request(b'{"id":"a"}'), request(headers={"webhook-id": "b"})

    tries = [verifier.check(each, 200).try_number for each in (first, second, first, first, second)]

    assert tries == [1, 1, 2, 3, 2]


def test_a_request_is_printed_for_people() -> None:
    body = b'{"id":"evt_1","type":"order.paid","data":{"n":1.0}}'

    lines = shown(request(body, {"webhook-id": "evt_1", "host": "x"}), status=500).splitlines()

    assert lines == [
        "12:00:00.000Z not verified: no secret given  order.paid  evt_1  POST /hook  answered 500",
        "  webhook-id: evt_1",
        "  {",
        '    "id": "evt_1",',
        '    "type": "order.paid",',
        '    "data": {',
        '      "n": 1.0',
        "    }",
        "  }",
        "",
    ]


NASTY = {
    "an escape": "\x1b[2J",
    "the other escape": "\x9b2J",
    "a bell": "\a",
    "a way back": "\r",
    "letters from right to left": "\u202e",
    "markup": "[red]",
}


@pytest.mark.parametrize("nasty", NASTY.values(), ids=NASTY)
def test_a_client_cannot_control_the_terminal(nasty: str) -> None:
    """Any sender on the port may send anything in a body, a header, an id or a type."""
    as_latin = nasty.encode("latin-1", "replace").decode("latin-1")
    event = {"id": nasty, "type": nasty, "data": nasty}
    for body in (json.dumps(event, ensure_ascii=False), nasty):
        seen = shown(request(body.encode(), {"webhook-id": as_latin, nasty: as_latin}))

        if nasty != "[red]":
            assert nasty not in seen
        assert all(each.isprintable() or each == "\n" for each in seen)


def test_characters_that_the_terminal_lacks_are_escaped() -> None:
    assert r"\xe9\u20ac" in shown(request("é€".encode()), encoding="ascii")


@pytest.mark.parametrize(
    "body",
    [b"", b"\xff\xfe", b"{", b'"\xff"', b"[" * 100_000, b"null", b"1", b'{"id": 5, "type": []}'],
)
def test_a_body_that_is_not_an_event_is_printed(body: bytes) -> None:
    received = request(body)

    assert shown(received).startswith("12:00:00.000Z not verified")
    record = as_record(Verifier(profile="standard", secrets=[]).check(received, 200))
    told = json.loads(msgspec.json.encode(record))
    assert (told["id"], told["type"]) == (None, None)


def test_a_long_body_is_shortened_for_people_and_complete_in_json() -> None:
    body = json.dumps({"data": "x" * 10 * BODY_LENGTH_MAX}).encode()

    seen = shown(request(body))
    record = as_record(Verifier(profile="standard", secrets=[]).check(request(body), 200))

    assert len(seen) < 2 * BODY_LENGTH_MAX
    assert "characters more" in seen
    assert json.loads(msgspec.json.encode(record))["body"] == json.loads(body)
