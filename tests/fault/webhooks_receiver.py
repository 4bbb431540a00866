"""A process that receives webhooks, verifies their signatures, and answers as planned.

`python -m tests.fault.webhooks_receiver PORT RECORD SEED`. Each request is one line in the record,
written when it is answered or will never be. Arrivals and answers of all requests are numbered by
one counter, which gives their exact order.
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

from tests.fault.webhooks_plan import SUBSCRIPTIONS, Behaviour, behaviour_of, secret_of

DELAY_SECONDS = (0.05, 0.1, 0.2, 0.4)
STATUSES: dict[Behaviour, int] = {
    "accept": 200,
    "delay": 200,
    "refuse": 400,
    "fail": 500,
    "retry now": 429,
    "retry later": 429,
}
FORGED = 401  # Not a planned answer, so the proof finds it.
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

    def decide(self, path: str, headers: dict[str, str], body: bytes) -> tuple[Behaviour, int]:
        """Return what to do with a request, and with which status."""
        try:
            self._verifiers[path].verify(body, headers, json_parse=False)
        except WebhookVerificationError:
            return "refuse", FORGED
        event_id = headers["webhook-id"]
        self._numbers[path, event_id] += 1
        number = self._numbers[path, event_id]
        behaviour = behaviour_of(self._seed, path, event_id, number=number)
        return behaviour, STATUSES.get(behaviour, NO_ANSWER)

    def append(self, *fields: object) -> None:
        os.write(self._record, (" ".join(map(str, fields)) + "\n").encode())


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
        self._handle(first.split(" ")[1], headers, body)

    def _handle(self, path: str, headers: dict[str, str], body: bytes) -> None:
        assert self._transport is not None
        arrived, arrived_at = self._responder.tick(), time()
        behaviour, status = self._responder.decide(path, headers, body)

        def answer() -> None:
            assert self._transport is not None
            # A closed connection carries no answer.
            given = NO_ANSWER if self._transport.is_closing() else status
            if given:
                self._transport.write(_response(behaviour, given))
            self._responder.append(
                path,
                headers["webhook-id"],
                given,
                arrived,
                self._responder.tick(),
                arrived_at,
                time(),
            )

        if behaviour == "delay":
            seconds = DELAY_SECONDS[arrived % len(DELAY_SECONDS)]
            asyncio.get_running_loop().call_later(seconds, answer)
            return
        answer()
        if behaviour == "disconnect":
            self._transport.close()


def _response(behaviour: Behaviour, status: int) -> bytes:
    more = b""
    if behaviour == "retry now":
        more = b"Retry-After: 0\r\n"
    elif behaviour == "retry later":
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
