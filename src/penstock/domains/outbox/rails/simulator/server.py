"""The HTTP server of the simulator: it answers, or fails as it was ordered to.

`POST /payments` pays, `GET /payments/{key}` answers queries, `GET /ledger` shows what was paid.
`POST /orders` and `DELETE /orders` say how to fail, `POST /settlements` settles or returns a
payment that was accepted.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import TypeVar
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

import msgspec
from msgspec import Struct

from penstock.domains.outbox.rails.simulator.entry import Entry, RequestedPayment, Totals
from penstock.domains.outbox.rails.simulator.ledger import Ledger
from penstock.domains.outbox.rails.simulator.order import Later, Moment, Order, OrderBook
from penstock.domains.outbox.rails.simulator.report import ReportTarget, send_report

T = TypeVar("T")

HOST = "127.0.0.1"  # Nothing else: any client can order failures.
HEAD_BYTES_MAX = 32 * 1024
BODY_BYTES_MAX = 512 * 1024  # Twice the default limit of a payload.
IDLE_SECONDS_MAX = 75
PAGE_MAX = 10_000
CRASH_STATUS = 137  # As after kill -9.


class PaymentRequest(Struct, frozen=True, kw_only=True):
    """The body of a payment. `simulate` says how this one fails, if it does."""

    instruction_id: str
    amount: str
    currency: str
    outbox_id: str = ""
    participant_id: str = ""
    sequence_id: int = 0
    simulate: Order | None = None


class Settlement(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What becomes of a payment that was accepted, and the report to send, if any."""

    key: str
    code: Later
    report: ReportTarget | None = None


class PaymentReply(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a client gets about a payment."""

    code: str
    reference: str | None = None
    amount: str | None = None
    currency: str | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: bytes


class _Refused(Exception):
    """The request gets this status and a message."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class _Malformed(_Refused):
    """The request cannot be read, so the next one on its connection cannot be found either."""

    def __init__(self, message: str) -> None:
        super().__init__(HTTPStatus.BAD_REQUEST, message)


class _Lost(Exception):
    """The connection ends without an answer."""


@dataclass(slots=True, kw_only=True)
class Simulator:
    """The rail. `may_crash` lets an order end the process; only a process of its own may.

    If `is_idempotent` is false, every request is booked, whatever its key.
    """

    ledger: Ledger
    is_idempotent: bool = True
    may_crash: bool = False
    orders: OrderBook = field(default_factory=OrderBook)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def answer(self, request: _Request) -> tuple[int, bytes]:
        """Return status and JSON body; raises _Lost for an answer that is ordered to be lost."""
        match request.method, request.path.strip("/").split("/"):
            case "POST", ["payments"]:
                return await self._pay(request)
            case "GET", ["payments", key]:
                return await self._query(unquote(key))
            case "GET", ["ledger"]:
                return await self._show(request)
            case "POST", ["orders"]:
                self.orders.add(_decode(request.body, Order))
                return HTTPStatus.OK, b"{}"
            case "DELETE", ["orders"]:
                self.orders.clear()
                return HTTPStatus.OK, b"{}"
            case "POST", ["settlements"]:
                return await self._settle(_decode(request.body, Settlement))
            case _:
                raise _Refused(HTTPStatus.NOT_FOUND, "no such endpoint")

    async def read(self, *, after: int, limit: int) -> tuple[list[Entry], Totals]:
        """Return a page of the ledger, and its totals."""
        page = min(limit, PAGE_MAX)
        entries = await self._in_thread(lambda: self.ledger.list(after=after, limit=page))
        return entries, await self._in_thread(self.ledger.totals)

    async def _pay(self, request: _Request) -> tuple[int, bytes]:
        new = _decode(request.body, PaymentRequest)
        key = request.headers.get("idempotency-key", new.instruction_id)
        order = self.orders.take(new.instruction_id, new.simulate)
        if not self.is_idempotent:
            order = msgspec.structs.replace(order, is_repeatable=True)
        await asyncio.sleep(order.delay_seconds)
        self._fail(order, "before_booking")
        if not order.is_recorded:
            return order.http_status, _encode(PaymentReply(code=order.code, message="not booked"))
        payment = RequestedPayment(
            key=key,
            instruction_id=new.instruction_id,
            outbox_id=new.outbox_id,
            participant_id=new.participant_id,
            sequence_id=new.sequence_id,
            amount=new.amount,
            currency=new.currency,
        )
        entry, is_new = await self._in_thread(lambda: self.ledger.book(payment, order))
        self._fail(order, "after_booking")
        await asyncio.sleep(order.reply_delay_seconds)
        is_same = (entry.amount, entry.currency, entry.instruction_id) == (
            new.amount, new.currency, new.instruction_id,
        )  # fmt: skip
        if not is_same:
            message = "the key belongs to another payment"
            return HTTPStatus.CONFLICT, _encode(PaymentReply(code="DUPLICATE", message=message))
        return order.http_status if is_new else HTTPStatus.OK, _encode(_describe(entry))

    async def _query(self, key: str) -> tuple[int, bytes]:
        entry = await self._in_thread(lambda: self.ledger.find(key))
        if entry is None:
            return HTTPStatus.NOT_FOUND, _encode(PaymentReply(code="NOT_FOUND"))
        return HTTPStatus.OK, _encode(_describe(entry))

    async def _show(self, request: _Request) -> tuple[int, bytes]:
        after, limit = _number(request, "after", 0), _number(request, "limit", 1_000)
        entries, totals = await self.read(after=after, limit=limit)
        return HTTPStatus.OK, msgspec.json.encode({"payments": entries, "totals": totals})

    async def _settle(self, asked: Settlement) -> tuple[int, bytes]:
        if not await self._in_thread(lambda: self.ledger.change(asked.key, asked.code)):
            raise _Refused(HTTPStatus.NOT_FOUND, "no accepted payment has this key")
        entry = await self._in_thread(lambda: self.ledger.find(asked.key))
        if entry is not None and asked.report is not None:
            try:
                await asyncio.to_thread(send_report, asked.report, entry)
            except OSError as failed:
                raise _Refused(HTTPStatus.BAD_GATEWAY, "the report was not taken") from failed
        return await self._query(asked.key)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        """Wait for the disk in a thread, one call at a time: others are answered meanwhile."""
        async with self._lock:
            return await asyncio.to_thread(work)

    def _fail(self, order: Order, moment: Moment) -> None:
        if order.crash == moment and self.may_crash:
            os._exit(CRASH_STATUS)
        if moment in (order.crash, order.lose):
            raise _Lost


@asynccontextmanager
async def serving(simulator: Simulator, *, port: int = 0) -> AsyncGenerator[str]:
    """Serve on loopback while the body runs, and yield the URL."""
    connections: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "asyncio serves each connection in a task"
        connections.add(task)
        try:
            await _serve_connection(simulator.answer, reader, writer)
        except asyncio.CancelledError:
            writer.transport.abort()  # The server is closed, and nothing awaits this task.
        finally:
            writer.close()
            connections.discard(task)

    server = await asyncio.start_server(serve, HOST, port, limit=HEAD_BYTES_MAX)
    try:
        yield f"http://{HOST}:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in list(connections):
            task.cancel()
        if connections:
            await asyncio.wait(connections)
        await server.wait_closed()


async def open_simulator(
    path: Path, *, is_idempotent: bool = True, may_crash: bool = False
) -> Simulator:
    """Return a simulator on a ledger, which is created on first use."""
    ledger = await asyncio.to_thread(Ledger, path)
    return Simulator(ledger=ledger, is_idempotent=is_idempotent, may_crash=may_crash)


async def _serve_connection(
    answer: Callable[[_Request], Awaitable[tuple[int, bytes]]],
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> None:
    """Answer requests until the client ends the connection, or an answer is ordered to be lost."""
    with suppress(ConnectionError, asyncio.IncompleteReadError, TimeoutError):
        is_last = False
        while not is_last:
            try:
                request = await _read(reader)
                status, body = await answer(request)
            except _Refused as refused:
                status, is_last = refused.status, isinstance(refused, _Malformed)
                body = _encode(PaymentReply(code="INVALID", message=str(refused)))
            except _Lost:
                writer.transport.abort()
                return
            writer.write(
                b"HTTP/1.1 %d %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
                % (status, HTTPStatus(status).phrase.encode(), len(body), body)
            )
            await writer.drain()


async def _read(reader: asyncio.StreamReader) -> _Request:
    async with asyncio.timeout(IDLE_SECONDS_MAX):
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            raise ConnectionError from None
        first, *lines = head.decode("latin-1").split("\r\n")
        pairs = (line.split(":", 1) for line in lines if ":" in line)
        headers = {name.strip().lower(): value.strip() for name, value in pairs}
        method, place = _parse_first_line(first)
        length = _parse_length(headers)
        if length > BODY_BYTES_MAX:
            raise ConnectionError
        body = await reader.readexactly(length)
    return _Request(
        method=method, path=place.path, query=parse_qs(place.query), headers=headers, body=body
    )


def _parse_first_line(line: str) -> tuple[str, SplitResult]:
    try:
        method, target, _ = line.split(" ", 2)
        return method, urlsplit(target)
    except ValueError as malformed:
        raise _Malformed("the request line is not valid") from malformed


def _parse_length(headers: dict[str, str]) -> int:
    """Return the length of the body. A body in chunks is refused: no client of a rail sends one."""
    text = headers.get("content-length", "0")
    if "transfer-encoding" in headers or not (text.isascii() and text.isdigit()):
        raise _Malformed("Content-Length must give the length of the body")
    return int(text) if len(text) <= len(str(BODY_BYTES_MAX)) else BODY_BYTES_MAX + 1


def _decode(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError as refused:
        raise _Refused(HTTPStatus.BAD_REQUEST, str(refused)) from refused


def _number(request: _Request, name: str, default: int) -> int:
    text = request.query.get(name, [str(default)])[0]
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise _Refused(HTTPStatus.BAD_REQUEST, f"{name} is not a number")
    return int(text)


def _describe(entry: Entry) -> PaymentReply:
    return PaymentReply(
        code=entry.code, reference=entry.reference, amount=entry.amount, currency=entry.currency
    )


def _encode(answer: PaymentReply) -> bytes:
    return msgspec.json.encode(answer)
