"""The receiver of `penstock listen` without its process: what it takes, and what it shows."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from io import BytesIO, TextIOWrapper

import msgspec
import pytest
from rich.console import Console

from penstock.cli.listen.server import BODY_BYTES_MAX, HEAD_BYTES_MAX, Received, receiving
from penstock.cli.listen.view import BODY_LENGTH_MAX, Judge, as_record, read_key, show
from penstock.domains.webhooks.secret import (
    Ed25519Secret,
    Profile,
    make_secret,
    public_key,
    read_secret,
)
from penstock.domains.webhooks.sign import Signer

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
GOOD = b"POST /good HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
BYE = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"

# --------------------------------------------------------------------------------------- server


@dataclass(slots=True, kw_only=True)
class Place:
    """A receiver, what it got, and how to speak to it."""

    port: int
    requests: list[Received] = field(default_factory=list[Received])

    async def say(self, *parts: bytes, ends: bool = True) -> bytes:
        """Send parts one after another and return all that is answered until the end."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            for part in parts:
                writer.write(part)
                await writer.drain()
            if ends:
                writer.write_eof()
            async with asyncio.timeout(10):
                return await reader.read()
        except ConnectionError:
            return b""
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


async def test_a_request_is_taken_whole_and_answered() -> None:
    async with place(503) as here:
        said = await here.say(GOOD)

    assert said == b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"
    (taken,) = here.requests
    assert (taken.method, taken.path, taken.body) == ("POST", "/good", b"{}")
    assert taken.headers == {"host": "x", "content-length": "2"}


async def test_requests_of_one_connection_are_answered_in_their_order() -> None:
    """Clients keep connections, and some send before they were answered."""
    async with place() as here:
        whole = await here.say(GOOD + GOOD.replace(b"good", b"two") + GOOD.replace(b"good", b"3"))
        torn = await here.say(*(GOOD[place : place + 1] for place in range(len(GOOD))))

    assert whole == 3 * OK
    assert torn == OK
    assert [each.path for each in here.requests] == ["/good", "/two", "/3", "/good"]


@pytest.mark.parametrize("length", [0, 1, 70_000])
async def test_a_chunked_body_is_put_together(length: int) -> None:
    head = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunk = b"%x\r\n%b\r\n" % (length, b"x" * length) if length else b""

    async with place() as here:
        assert await here.say(head + chunk + b"0\r\nX-Trailer: 1\r\n\r\n") == OK

    assert here.requests[0].body == b"x" * length


async def test_a_client_that_asks_first_may_send_its_body() -> None:
    head, body = GOOD.replace(b"Host: x", b"Expect: 100-Continue").split(b"{}")[0], b"{}"

    async with place() as here:
        assert await here.say(head, body) == b"HTTP/1.1 100 Continue\r\n\r\n" + OK


async def test_a_header_given_twice_is_one_with_a_comma() -> None:
    async with place() as here:
        await here.say(GOOD.replace(b"Host: x", b"X-A: 1\r\nx-a: 2"))

    assert here.requests[0].headers["x-a"] == "1, 2"


async def test_an_answer_without_a_body_has_no_length() -> None:
    async with place(204) as here:
        assert await here.say(GOOD) == b"HTTP/1.1 204 No Content\r\n\r\n"


GARBAGE = {
    "nothing": b"",
    "no HTTP": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "zeros": bytes(10_000),
    "a line": b"hello\r\n\r\n",
    "half a head": b"POST / HTTP/1.1\r\nHost",
    "half a body": GOOD[:-1],
    "a version that cannot be": b"POST / HTTP/9.9\r\n\r\n",
    "a method that cannot be": b"P\xffST / HTTP/1.1\r\n\r\n",
    "a length that is none": GOOD.replace(b": 2", b": two"),
    "a length below nothing": GOOD.replace(b": 2", b": -2"),
    "a length without end": GOOD.replace(b": 2", b": " + b"9" * 100),
    "two lengths": GOOD.replace(b"Host: x", b"Content-Length: 3"),
    "a length and chunks": GOOD.replace(b"Host: x", b"Transfer-Encoding: chunked"),
    "a chunk that is none": b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    "a header that is none": b"POST / HTTP/1.1\r\n: x\r\n\r\n",
    "a long path": b"POST /" + b"x" * (HEAD_BYTES_MAX + 100),
    "a long header": b"POST / HTTP/1.1\r\nX: " + b"x" * (HEAD_BYTES_MAX + 100),
    "many headers": b"POST / HTTP/1.1\r\n" + b"x: y\r\n" * 20_000,
    "trailers without end": b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n"
    + b"x: y\r\n" * 20_000,
    "a way through": b"CONNECT example.com:443 HTTP/1.1\r\nHost: x\r\n\r\n",
    "the second version": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
}


@pytest.mark.parametrize("sent", GARBAGE.values(), ids=GARBAGE)
async def test_garbage_ends_its_own_connection_and_nothing_else(sent: bytes) -> None:
    """A port that is open gets everything."""
    async with place() as here:
        said = await here.say(sent)

        assert said == b"" or said.startswith(b"HTTP/1.1 ")
        assert await here.say(GOOD) == OK


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (GOOD.replace(b": 2", b": %d" % (BODY_BYTES_MAX + 1))[:-2], 413),
        (b"POST / HTTP/1.1\r\nX: " + b"x" * HEAD_BYTES_MAX, 431),
        (b"hello\r\n\r\n", 400),
        (GOOD.replace(b"Host: x", b"Connection: Upgrade\r\nUpgrade: h2c"), 501),
    ],
)
async def test_a_refusal_says_why_and_is_the_last_word(sent: bytes, status: int) -> None:
    async with place() as here:
        said = await here.say(sent, ends=False)

    assert said.startswith(b"HTTP/1.1 %d " % status)
    assert b"Connection: close\r\n" in said
    assert not here.requests


async def test_a_body_of_chunks_that_grows_too_long_is_not_kept() -> None:
    chunk = b"100000\r\n" + b"x" * 0x10_0000 + b"\r\n"
    head = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"

    async with place() as here:
        said = await here.say(head, *[chunk] * (BODY_BYTES_MAX // 0x10_0000 + 2))

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
    """Return what a person sees of a request that is not verified."""
    written = BytesIO()
    file = TextIOWrapper(written, encoding=encoding)
    show(
        Judge(profile="standard", secrets=[]).judge(received, status), Console(file=file, width=40)
    )
    return written.getvalue().decode(encoding)


@pytest.mark.parametrize("profile", ["standard", "svix", "github", "stripe"])
def test_what_penstock_signs_is_verified(profile: Profile) -> None:
    secret = make_secret()
    body = b'{"id":"evt_1","type":"order.paid","data":{"n":1.0}}'
    judge = Judge(profile=profile, secrets=[read_key(secret, profile)])

    good = judge.judge(signed(body, secret, profile=profile), 200)
    forged = judge.judge(signed(body, make_secret(), profile=profile), 200)
    bare = judge.judge(request(body), 200)

    assert (good.verdict, good.detail) == ("verified", None)
    assert (good.event_id, good.event_type) == ("evt_1", "order.paid")
    assert forged.verdict == "mismatch"
    assert bare.verdict == "missing"


def test_a_public_key_is_enough() -> None:
    secret = make_secret("ed25519")
    pair = read_secret(secret, "standard")
    assert isinstance(pair, Ed25519Secret)
    judge = Judge(profile="standard", secrets=[read_key(public_key(pair), "standard")])

    assert judge.judge(signed(b"{}", secret), 200).verdict == "verified"
    assert judge.judge(signed(b"{}", make_secret("ed25519")), 200).verdict == "mismatch"


def test_tries_of_one_message_are_counted() -> None:
    judge = Judge(profile="standard", secrets=[])
    first, second = request(b'{"id":"a"}'), request(headers={"webhook-id": "b"})

    tries = [judge.judge(each, 200).try_number for each in (first, second, first, first, second)]

    assert tries == [1, 1, 2, 3, 2]


def test_a_person_sees_what_it_is_about() -> None:
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
def test_a_stranger_cannot_steer_the_terminal(nasty: str) -> None:
    """Whoever finds the port may send anything in a body, a header, an id or a type."""
    as_latin = nasty.encode("latin-1", "replace").decode("latin-1")
    event = {"id": nasty, "type": nasty, "data": nasty}
    for body in (json.dumps(event, ensure_ascii=False), nasty):
        seen = shown(request(body.encode(), {"webhook-id": as_latin, nasty: as_latin}))

        if nasty != "[red]":
            assert nasty not in seen
        assert all(each.isprintable() or each == "\n" for each in seen)


def test_what_the_terminal_cannot_write_is_escaped() -> None:
    assert r"\xe9\u20ac" in shown(request("é€".encode()), encoding="ascii")


@pytest.mark.parametrize(
    "body",
    [b"", b"\xff\xfe", b"{", b'"\xff"', b"[" * 100_000, b"null", b"1", b'{"id": 5, "type": []}'],
)
def test_a_body_that_is_no_event_is_shown_all_the_same(body: bytes) -> None:
    received = request(body)

    assert shown(received).startswith("12:00:00.000Z not verified")
    record = as_record(Judge(profile="standard", secrets=[]).judge(received, 200))
    told = json.loads(msgspec.json.encode(record))
    assert (told["id"], told["type"]) == (None, None)


def test_of_a_long_body_the_beginning_is_shown_and_programs_get_all() -> None:
    body = json.dumps({"data": "x" * 10 * BODY_LENGTH_MAX}).encode()

    seen = shown(request(body))
    record = as_record(Judge(profile="standard", secrets=[]).judge(request(body), 200))

    assert len(seen) < 2 * BODY_LENGTH_MAX
    assert "characters more" in seen
    assert json.loads(msgspec.json.encode(record))["body"] == json.loads(body)
