"""A process that receives webhooks, verifies each of them, and answers as the plan has it.

`python -m tests.fault.webhooks_receiver PORT RECORD SEED`. A line for each request is appended to
the record when it is answered, or when it is plain that it never will be. All instants of one
request, and of all, are numbered by one clock that only ticks: so their order is beyond doubt.
"""

import asyncio
import itertools
import os
import sys
from collections import Counter
from time import time
from typing import cast

import uvloop
from standardwebhooks import Webhook, WebhookVerificationError

from tests.fault.webhooks_plan import SUBSCRIPTIONS, Conduct, conduct_of, secret_of

DAWDLE_SECONDS = (0.05, 0.1, 0.2, 0.4)
STATUSES: dict[Conduct, int] = {
    "take": 200,
    "dawdle": 200,
    "refuse": 400,
    "fail": 500,
    "put off": 429,
    "send to rest": 429,
}
FORGED = 401  # The plan knows no such answer, so the proof finds it.
NO_ANSWER = 0


class Responder:
    """What all connections share."""

    def __init__(self, record: int, seed: int) -> None:
        self._record = record
        self._seed = seed
        self._tick = itertools.count(1)
        self._numbers: Counter[tuple[str, str]] = Counter()
        self._verifiers = {path: Webhook(secret_of(path)) for path in SUBSCRIPTIONS}

    def tick(self) -> int:
        return next(self._tick)

    def decide(self, path: str, headers: dict[str, str], body: bytes) -> tuple[Conduct, int]:
        """Return what to do with a request, and with which status."""
        try:
            self._verifiers[path].verify(body, headers, json_parse=False)
        except WebhookVerificationError:
            return "refuse", FORGED
        event_id = headers["webhook-id"]
        self._numbers[path, event_id] += 1
        number = self._numbers[path, event_id]
        conduct = conduct_of(self._seed, path, event_id, number=number)
        return conduct, STATUSES.get(conduct, NO_ANSWER)

    def write_down(self, *words: object) -> None:
        os.write(self._record, (" ".join(map(str, words)) + "\n").encode())


class Connection(asyncio.Protocol):
    """One connection: requests come one at a time."""

    def __init__(self, responder: Responder) -> None:
        self._responder = responder
        self._received = bytearray()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        head_ends = self._received.find(b"\r\n\r\n")
        if head_ends < 0:
            return
        first, *lines = self._received[:head_ends].decode("latin-1").split("\r\n")
        headers = {
            name.lower(): value for name, _, value in (line.partition(": ") for line in lines)
        }
        ends = head_ends + 4 + int(headers["content-length"])
        if len(self._received) < ends:
            return
        body = bytes(self._received[head_ends + 4 : ends])
        del self._received[:ends]
        self._take(first.split(" ")[1], headers, body)

    def _take(self, path: str, headers: dict[str, str], body: bytes) -> None:
        assert self._transport is not None
        arrived, arrived_at = self._responder.tick(), time()
        conduct, status = self._responder.decide(path, headers, body)

        def answer() -> None:
            assert self._transport is not None
            # Nobody is told anything over a connection that is gone.
            given = NO_ANSWER if self._transport.is_closing() else status
            if given:
                self._transport.write(_response(conduct, given))
            self._responder.write_down(
                path,
                headers["webhook-id"],
                given,
                arrived,
                self._responder.tick(),
                arrived_at,
                time(),
            )

        if conduct == "dawdle":
            seconds = DAWDLE_SECONDS[arrived % len(DAWDLE_SECONDS)]
            asyncio.get_running_loop().call_later(seconds, answer)
            return
        answer()
        if conduct == "hang up":
            self._transport.close()


def _response(conduct: Conduct, status: int) -> bytes:
    more = b""
    if conduct == "put off":
        more = b"Retry-After: 0\r\n"
    elif conduct == "send to rest":
        more = b"Retry-After: 1\r\n"
    return b"HTTP/1.1 %d Planned\r\n%bContent-Length: 0\r\n\r\n" % (status, more)


async def main(port: str, path: str, seed: str) -> None:
    record = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    responder = Responder(record, int(seed))
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(responder), "127.0.0.1", int(port))
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
