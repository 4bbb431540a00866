"""A payment rail on loopback with a ledger, which loses replies, waits and refuses on demand.

The ledger decides whether something was paid twice: it books every call that it does not refuse,
unless it recognises keys. One request for each connection.
"""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from penstock.domains.outbox.instruction import Instruction
from penstock.domains.outbox.rails.rail import (
    CodeClass,
    LoadedRail,
    NoAnswer,
    NotFound,
    NotSent,
    QueryResult,
    RailAnswer,
    RailProperties,
    SendResult,
)

HOST = "127.0.0.1"
CODES: dict[str, CodeClass] = {
    "PAID": "paid",
    "ACCEPTED": "pending",
    "SETTLED": "paid",
    "RETURNED": "terminal",
    "REJECTED": "terminal",
    "BUSY": "retryable",
    "IN_PROGRESS": "unknown",
}

# What is done with a call. `pay` and `accept` book it; `lose` books it and sends no reply, `drop`
# does neither; `wait` books it, and replies when `resume` is set. Any other is a code, without a
# booking.
BOOKED = {"pay", "accept", "lose", "wait"}


@dataclass(slots=True, kw_only=True)
class Ledger:
    """The server: what it has booked, what it was asked, and what it does next."""

    recognises_keys: bool = False
    orders: list[str] = field(default_factory=list[str])
    bookings: list[str] = field(default_factory=list[str])
    statuses: dict[str, str] = field(default_factory=dict[str, str])
    references: dict[str, str | None] = field(default_factory=dict[str, str | None])
    calls: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    amount: str | None = None  # Replaces the amount in answers.
    is_silent: bool = False  # Queries get no answer.
    running: int = 0  # Sends that have no reply yet, and the most of them at once.
    most_at_once: int = 0
    called: asyncio.Event = field(default_factory=asyncio.Event)
    booked: asyncio.Event = field(default_factory=asyncio.Event)
    resume: asyncio.Event = field(default_factory=asyncio.Event)
    port: int = 0

    @property
    def paid_twice(self) -> list[str]:
        """The keys that were booked more than once."""
        return [key for key, count in Counter(self.bookings).items() if count > 1]

    def count(self, kind: str) -> int:
        """Return how many sends or queries arrived."""
        return sum(each == kind for each, _ in self.calls)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            method, key = head.split()[0], head.split()[1].removeprefix("/")
            lengths = [
                int(line.partition(":")[2])
                for line in head.lower().splitlines()
                if line.startswith("content-length")
            ]
            body = await reader.readexactly(lengths[0] if lengths else 0)
            answer = (
                self._query(key) if method == "GET" else await self._send(key, json.loads(body))
            )
            if answer is not None:
                status, content = ("200 OK", answer) if answer else ("404 Not Found", {})
                text = json.dumps(content).encode()
                lines = f"HTTP/1.1 {status}\r\nContent-Length: {len(text)}\r\n\r\n"
                writer.write(lines.encode() + text)
                await writer.drain()
        writer.close()

    async def _send(self, key: str, body: dict[str, str]) -> dict[str, Any] | None:
        self.running += 1
        self.most_at_once = max(self.most_at_once, self.running)
        try:
            return await self._book(key, body)
        finally:
            self.running -= 1

    async def _book(self, key: str, body: dict[str, str]) -> dict[str, Any] | None:
        self.calls.append(("send", key))
        self.called.set()
        order = self.orders.pop(0) if self.orders else "pay"
        if order == "drop":
            return None
        if order not in BOOKED:
            self.statuses.setdefault(key, order)
            return self._answer(order, key)
        if not (self.recognises_keys and key in self.bookings):
            self.bookings.append(key)
        self.booked.set()
        code = self.statuses[key] = "ACCEPTED" if order == "accept" else "PAID"
        if order == "wait":
            await self.resume.wait()
        return None if order == "lose" else self._answer(code, key, body)

    def _query(self, key: str) -> dict[str, Any] | None:
        self.calls.append(("query", key))
        if self.is_silent:
            return None
        code = self.statuses.get(key)
        return {} if code is None else self._answer(code, key)

    def _answer(self, code: str, key: str, body: dict[str, str] | None = None) -> dict[str, Any]:
        amount = self.amount or (body or {}).get("amount")
        reference = self.references.get(key, f"ref-{key}")
        return {"code": code, "reference": reference, "amount": amount}


@asynccontextmanager
async def keeping(ledger: Ledger) -> AsyncGenerator[Ledger]:
    """Serve a ledger on a free port, or on its own if it has one."""
    server = await asyncio.start_server(ledger.serve, HOST, ledger.port)
    ledger.port = server.sockets[0].getsockname()[1]
    async with server:
        yield ledger


async def booked(ledger: Ledger, count: int) -> None:
    """Wait until the ledger has as many bookings."""
    while len(ledger.bookings) < count:
        await ledger.booked.wait()
        ledger.booked.clear()


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopbackRail:
    """The adapter of a ledger."""

    port: int
    properties: RailProperties

    async def send(self, instruction: Instruction, *, timeout: timedelta) -> SendResult:
        body = {"amount": str(instruction.amount), "currency": instruction.currency}
        try:
            async with asyncio.timeout(timeout.total_seconds()):
                return await self._call("POST", instruction, body) or NoAnswer("404")
        except ConnectionRefusedError:
            return NotSent("connection refused")
        except (OSError, EOFError, TimeoutError) as failure:
            return NoAnswer(type(failure).__name__)

    async def query(self, instruction: Instruction, *, timeout: timedelta) -> QueryResult:
        try:
            async with asyncio.timeout(timeout.total_seconds()):
                return await self._call("GET", instruction, None) or NotFound()
        except (OSError, EOFError, TimeoutError) as failure:
            return NoAnswer(type(failure).__name__)

    async def _call(
        self, method: str, instruction: Instruction, body: dict[str, str] | None
    ) -> RailAnswer | None:
        reader, writer = await asyncio.open_connection(HOST, self.port)
        try:
            text = b"" if body is None else json.dumps(body).encode()
            head = f"{method} /{instruction.instruction_id} HTTP/1.1\r\n"
            writer.write(f"{head}Content-Length: {len(text)}\r\n\r\n".encode() + text)
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            if " 404 " in head.splitlines()[0]:
                return None
            given = json.loads(await reader.read())
        finally:
            writer.close()
        amount = None if given["amount"] is None else Decimal(given["amount"])
        return RailAnswer(code=given["code"], reference=given["reference"], amount=amount)


@dataclass(slots=True)
class OneRail:
    """Finds the one rail that there is; a test may replace it."""

    rail: LoadedRail | None

    async def find(self, rail_type: str) -> LoadedRail | None:
        return self.rail if self.rail is not None and self.rail.rail_type == rail_type else None


def loaded(
    port: int,
    *,
    rail_type: str = "loopback",
    timeout: timedelta = timedelta(seconds=30),
    concurrency_max: int = 50,
    promises_since: datetime | None = None,
    **properties: Any,
) -> LoadedRail:
    """Return a rail of a ledger on this port."""
    return LoadedRail(
        rail_type=rail_type,
        rail=LoopbackRail(port=port, properties=RailProperties(**properties)),
        codes=CODES,
        timeout=timeout,
        concurrency_max=concurrency_max,
        promises_since=promises_since,
    )
