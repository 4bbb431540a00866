"""Callers of the API in a process of their own, so cheap that they measure the server.

`python -m bench.callers VERB JSON` makes its calls and prints one line of JSON. `single` and
`batch` ask for slots, `events`, `paced_events` and `event_batches` post events. No HTTP library: it
would take as much CPU as the server, and there are two cores for all of it.
"""

import json
import select
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count
from random import Random
from typing import Any, Final

import httptools

from bench.events import TYPE, data

ANSWER_SECONDS_MAX: Final = 30.0
READ_BYTES: Final = 65_536
SEND_BYTES: Final = 1024 * 1024
COMPLAINT_BYTES: Final = 500
LENGTH: Final = b"\r\ncontent-length: "
STATUS: Final = b"HTTP/1.1 "


class WrongAnswer(Exception):
    """An answer that is not the expected one; the text is its beginning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the server is, and the key to it."""

    host: str
    port: int
    token: str

    def connect(self) -> socket.socket:
        """Open a connection."""
        connection = socket.create_connection((self.host, self.port), ANSWER_SECONDS_MAX)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def head(self, path: str, media_type: str) -> bytes:
        """Return the head of a request up to its length."""
        lines = (
            f"POST {path} HTTP/1.1",
            f"Host: {self.host}:{self.port}",
            f"Authorization: Bearer {self.token}",
            f"Content-Type: {media_type}",
            "Content-Length: ",
        )
        return "\r\n".join(lines).encode()


# -------------------------------------------------------------------------------- single calls


def single(
    place: Place, *, connections: int, seconds: float, requested_at: str, spread_seconds: float
) -> dict[str, object]:
    """Ask for slots, one in a call."""
    requests = _requests(place, datetime.fromisoformat(requested_at), spread_seconds)
    return _repeat(place, requests, connections=connections, seconds=seconds, status=200)


def events(place: Place, *, connections: int, seconds: float) -> dict[str, object]:
    """Post events, one in a call."""
    requests = _events(place, each=1)
    return _repeat(place, requests, connections=connections, seconds=seconds, status=202)


def event_batches(
    place: Place, *, connections: int, seconds: float, each: int
) -> dict[str, object]:
    """Post events, `each` of them in a call."""
    requests = _events(place, each=each)
    return _repeat(place, requests, connections=connections, seconds=seconds, status=200)


def paced_events(
    place: Place, *, connections: int, seconds: float, per_second: int, first: int = 0
) -> dict[str, object]:
    """Post events at a steady pace, one in a call; a wait counts from when the call was due."""
    poll = select.poll()
    callers: dict[int, _Caller] = {}
    for _ in range(connections):
        connection = place.connect()
        poll.register(connection.fileno(), select.POLLIN)
        callers[connection.fileno()] = _Caller(connection, STATUS + b"202 ")
    free = list(callers.values())
    requests = _events(place, each=1, first=first)
    due = deque[float]()
    waits: list[float] = []
    count_max = round(seconds * per_second)
    started = time.perf_counter()
    asked = 0
    while len(waits) < count_max:
        now = time.perf_counter()
        while asked < count_max and started + asked / per_second <= now:
            due.append(started + asked / per_second)
            asked += 1
        while due and free:
            caller = free.pop()
            caller.send(next(requests))
            caller.sent_at = due.popleft()
        until_next = started + asked / per_second - time.perf_counter()
        milliseconds = max(0.0, until_next * 1000) if asked < count_max else 1000.0
        for number, _ in poll.poll(milliseconds):
            caller = callers[number]
            if caller.receive():
                waits.append(time.perf_counter() - caller.sent_at)
                free.append(caller)
        if time.perf_counter() > started + seconds + ANSWER_SECONDS_MAX:
            raise WrongAnswer(f"{len(waits)} of {count_max} after {ANSWER_SECONDS_MAX:g} s more")
    return {"seconds": time.perf_counter() - started, "milliseconds": [w * 1000 for w in waits]}


def _repeat(
    place: Place, requests: Iterator[bytes], *, connections: int, seconds: float, status: int
) -> dict[str, object]:
    """Let each connection send its next request as soon as it has its answer."""
    poll = select.poll()
    callers: dict[int, _Caller] = {}
    for _ in range(connections):
        connection = place.connect()
        poll.register(connection.fileno(), select.POLLIN)
        callers[connection.fileno()] = _Caller(connection, STATUS + b"%d " % status)
    started = time.perf_counter()
    for caller in callers.values():
        caller.send(next(requests))
    until = started + seconds
    waits: list[float] = []
    open_calls = connections
    while open_calls:
        ready = poll.poll(ANSWER_SECONDS_MAX * 1000)
        if not ready:
            raise WrongAnswer(f"none in {ANSWER_SECONDS_MAX:g} s")
        for number, _ in ready:
            caller = callers[number]
            if not caller.receive():
                continue
            now = time.perf_counter()
            waits.append(now - caller.sent_at)
            if now < until:
                caller.send(next(requests))
            else:
                open_calls -= 1
    return {"seconds": time.perf_counter() - started, "milliseconds": [w * 1000 for w in waits]}


def _requests(place: Place, requested_at: datetime, spread_seconds: float) -> Iterator[bytes]:
    head = place.head("/api/v1/slots", "application/json")
    random = Random(3)
    at = _instant(requested_at)
    for number in count():
        if spread_seconds:
            at = _instant(requested_at + timedelta(seconds=random.uniform(0, spread_seconds)))
        body = _request(number, at)
        yield b"%b%d\r\n\r\n%b" % (head, len(body), body)


def _events(place: Place, *, each: int, first: int = 0) -> Iterator[bytes]:
    """Yield requests with events of their own from a number on, `each` in an array, or one bare."""
    head = place.head("/events" if each == 1 else "/events/batch", "application/json")
    for start in count(first, each):
        texts = [
            b'{"id":"called-%d","type":"%b","data":%b}' % (number, TYPE.encode(), data(number))
            for number in range(start, start + each)
        ]
        body = texts[0] if each == 1 else b"[%b]" % b",".join(texts)
        yield b"%b%d\r\n\r\n%b" % (head, len(body), body)


@dataclass(slots=True)
class _Caller:
    connection: socket.socket
    expected: bytes
    sent_at: float = 0.0
    received: bytes = b""

    def send(self, request: bytes) -> None:
        self.sent_at = time.perf_counter()
        self.connection.sendall(request)

    def receive(self) -> bool:
        """Read what is there; tell whether that completes the answer, which must be as expected."""
        data = self.received + self.connection.recv(READ_BYTES)
        head_ends = data.find(b"\r\n\r\n")
        if head_ends > 0:
            if not data.startswith(self.expected):
                raise WrongAnswer(data[:COMPLAINT_BYTES].decode(errors="replace"))
            at = data.index(LENGTH) + len(LENGTH)
            length = int(data[at : data.index(b"\r", at)])
            if len(data) >= head_ends + 4 + length:
                self.received = b""
                return True
        elif not data:
            raise WrongAnswer("the server closed the connection")
        self.received = data
        return False


# ------------------------------------------------------------------------------------- batches


def batch(place: Place, *, first: int, items: int, requested_at: str) -> dict[str, object]:
    """Send one body of NDJSON and read the answer while sending; time it to the last byte."""
    at = _instant(datetime.fromisoformat(requested_at))
    body = b"\n".join(_request(number, at) for number in range(first, first + items))
    head = place.head("/api/v1/slots/batch", "application/x-ndjson")
    rest = memoryview(b"%b%d\r\n\r\n%b" % (head, len(body), body))
    answer = _Answer()
    parser = httptools.HttpResponseParser(answer)
    connection = place.connect()
    connection.setblocking(False)  # noqa: FBT003 - the socket module's own form
    started = time.perf_counter()
    while not answer.is_complete:
        readable, writable, _ = select.select(
            [connection], [connection] if rest else [], [], ANSWER_SECONDS_MAX
        )
        if not readable and not writable:
            raise WrongAnswer(f"nothing in {ANSWER_SECONDS_MAX:g} s")
        if writable:
            rest = rest[connection.send(rest[:SEND_BYTES]) :]
        if readable:
            if not (data := connection.recv(SEND_BYTES)):
                raise WrongAnswer("the server closed the connection")
            parser.feed_data(data)
    seconds = time.perf_counter() - started
    content = b"".join(answer.parts)
    if parser.get_status_code() != 200 or content.count(b'"scheduledTime"') != items:
        raise WrongAnswer(content[:COMPLAINT_BYTES].decode(errors="replace"))
    return {"seconds": seconds, "items": items}


@dataclass(slots=True)
class _Answer:
    """What httptools tells of an answer."""

    parts: list[bytes] = field(default_factory=list)
    is_complete: bool = False

    def on_body(self, part: bytes) -> None:
        self.parts.append(part)

    def on_message_complete(self) -> None:
        self.is_complete = True


def _request(number: int, at: bytes) -> bytes:
    return b'{"eventId":"payment-%012d","configName":"default","requestedTime":"%b"}' % (number, at)


def _instant(at: datetime) -> bytes:
    return at.strftime("%Y-%m-%dT%H:%M:%S.%fZ").encode()


VERBS: Final[dict[str, Callable[..., dict[str, object]]]] = {
    "single": single,
    "batch": batch,
    "events": events,
    "paced_events": paced_events,
    "event_batches": event_batches,
}


def main() -> None:
    verb, text = sys.argv[1:]
    arguments: dict[str, Any] = json.loads(text)
    place = Place(**arguments.pop("place"))
    print(json.dumps(VERBS[verb](place, **arguments)))


if __name__ == "__main__":
    main()
