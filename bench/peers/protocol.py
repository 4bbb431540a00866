"""The child's half of the wire between the bench and one queue: JSON lines on stdin and stdout.

A queue brings five small verbs (`Queue`); timing, counting and the wire are here, the same for
every queue, so that no adapter can time itself more kindly than another. `protocol.mjs` is the
same thing for Node. Standard library only: this runs in the peers' environments.
"""

import asyncio
import contextlib
import json
import os
import random
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Literal, Protocol

Mode = Literal["throughput", "latency"]
Handle = Callable[[int], Awaitable[None]]
"""The no-op handler. Adapters pass the item's number, or 0 where the payload is not decoded."""
Answer = dict[str, object]

PAYLOAD_BYTES = 200
PROGRESS_SECONDS = 0.5
SETTLED_POLL_SECONDS = 0.02
SETTLED_SECONDS_MAX = 60.0
LATENCY_GAP_SECONDS = (0.03, 0.07)  # long enough that the item before it is settled: an idle queue
LATENCY_WARM_UP = 5
LATENCY_SECONDS_MAX = 10.0
WORKER_START_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Place:
    """Where the database is: a unix socket folder, a user and a database."""

    host: str
    user: str
    database: str

    @property
    def dsn(self) -> str:
        """Return a libpq URL, which asyncpg and psycopg both read."""
        return f"postgresql://{self.user}@/{self.database}?host={self.host}"


class Queue(Protocol):
    """What one queue has to bring. All of it is called in one process and one event loop."""

    chunk: int
    """How many items one `insert` takes: the queue's best bulk size."""

    async def setup(self, place: Place, *, install: bool) -> None:
        """Connect, and install the schema when asked to."""
        ...

    async def insert(self, first: int, count: int, *, keyed: bool) -> None:
        """Commit `count` due items numbered from `first`, in bulk; keyed: with idempotency keys."""
        ...

    async def submit(self, number: int) -> float:
        """Commit one item; return `time.perf_counter()` of the moment before COMMIT was sent."""
        ...

    async def work(self, handle: Handle, *, stop: asyncio.Event, mode: Mode) -> None:
        """Run one worker that awaits `handle(number)` per item, until `stop` is set."""
        ...

    async def is_settled(self) -> bool:
        """Return whether no item is waiting or unfinished in the queue's own tables."""
        ...


def payload(number: int) -> dict[str, object]:
    """Return a payload that is PAYLOAD_BYTES long as compact JSON."""
    head = len(f'{{"n":{number},"pad":""}}')
    return {"n": number, "pad": "x" * (PAYLOAD_BYTES - head)}


def payload_json(number: int) -> str:
    """Return the payload as the JSON text of exactly PAYLOAD_BYTES."""
    return json.dumps(payload(number), separators=(",", ":"))


def serve(queue: Queue, more: dict[str, Callable[..., Awaitable[Answer]]] | None = None) -> None:
    """Answer verbs from stdin until it closes; `more` adds verbs of the queue's own."""
    with (
        contextlib.suppress(KeyboardInterrupt),
        asyncio.Runner(loop_factory=_loop_factory()) as runner,
    ):
        runner.run(_serve(queue, more or {}))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    # Everybody gets uvloop: it is what all of the Python peers recommend.
    try:
        import uvloop  # noqa: PLC0415 - not every environment has it
    except ImportError:
        return None
    return uvloop.new_event_loop


async def _serve(queue: Queue, more: dict[str, Callable[..., Awaitable[Answer]]]) -> None:
    verbs: dict[str, Callable[..., Awaitable[Answer]]] = {
        "setup": lambda **a: _setup(queue, **a),
        "fill": lambda **a: _insert(queue, keyed=False, **a),
        "enqueue": lambda **a: _insert(queue, keyed=True, **a),
        "drain": lambda **a: drain(queue, **a),
        "latency": lambda **a: _latency(queue, **a),
        **more,
    }
    async for line in _lines():
        request = json.loads(line)
        try:
            say({"ok": await verbs[request.pop("verb")](**request)})
        except Exception as exc:  # the bench must hear of it, whatever it is
            say({"error": _describe(exc)})
            raise


def _describe(exc: BaseException) -> str:
    while isinstance(exc, BaseExceptionGroup):
        exc = exc.exceptions[0]
    return f"{type(exc).__name__}: {exc}"


async def _lines() -> AsyncIterator[bytes]:
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        yield line


def say(message: Answer) -> None:
    """Write one line to the bench."""
    os.write(1, json.dumps(message).encode() + b"\n")


async def _setup(queue: Queue, *, place: dict[str, str], install: bool) -> Answer:
    await queue.setup(Place(**place), install=install)
    return {}


async def _insert(queue: Queue, *, first: int, items: int, keyed: bool) -> Answer:
    started = shown = time.perf_counter()
    for offset in range(0, items, queue.chunk):
        await queue.insert(first + offset, min(queue.chunk, items - offset), keyed=keyed)
        if time.perf_counter() - shown > PROGRESS_SECONDS:
            shown = time.perf_counter()
            say({"progress": offset + queue.chunk})
    return {"items": items, "seconds": time.perf_counter() - started}


@dataclass(slots=True)
class Tally:
    """Counts handler calls and says when the wanted number is reached."""

    wanted: int
    count: int = 0
    reached: asyncio.Event = field(default_factory=asyncio.Event)

    async def handle(self, _number: int) -> None:
        """Be the no-op handler."""
        self.count += 1
        if self.count == self.wanted:
            self.reached.set()


async def drain(
    queue: Queue, *, items: int, whole: bool, seconds_max: float, handle: Handle | None = None
) -> Answer:
    """Time one worker from its start until `items` are handled, or until the time is up.

    `whole` says that these are all the items there are: then the clock stops only when the
    queue's own tables say that everything is settled, so that batched completion is paid for.
    """
    tally = Tally(items)
    counted = tally.handle if handle is None else _both(tally.handle, handle)
    stop = asyncio.Event()
    started = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        group.create_task(queue.work(counted, stop=stop, mode="throughput"))
        with contextlib.suppress(TimeoutError):
            await _reached(tally, seconds_max)
        if whole and tally.reached.is_set():
            await _settled(queue)
        seconds, handled = time.perf_counter() - started, tally.count
        stop.set()
    return {"items": handled, "seconds": seconds, "timed_out": handled < items}


def _both(one: Handle, other: Handle) -> Handle:
    async def handle(number: int) -> None:
        await other(number)
        await one(number)

    return handle


async def _reached(tally: Tally, seconds_max: float) -> None:
    async with asyncio.timeout(seconds_max):
        while not tally.reached.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(tally.reached.wait(), PROGRESS_SECONDS)
            say({"progress": tally.count})


async def _settled(queue: Queue) -> None:
    async with asyncio.timeout(SETTLED_SECONDS_MAX):
        while not await queue.is_settled():  # noqa: ASYNC110 - it asks a database
            await asyncio.sleep(SETTLED_POLL_SECONDS)


async def _latency(queue: Queue, *, samples: int) -> Answer:
    """Enqueue one at a time into an idle queue; milliseconds from COMMIT to handler start."""
    started_at: asyncio.Queue[float] = asyncio.Queue()

    async def handle(_number: int) -> None:
        started_at.put_nowait(time.perf_counter())

    stop = asyncio.Event()
    waits: list[float] = []
    async with asyncio.TaskGroup() as group:
        group.create_task(queue.work(handle, stop=stop, mode="latency"))
        await asyncio.sleep(WORKER_START_SECONDS)
        for number in range(samples + LATENCY_WARM_UP):
            await asyncio.sleep(random.uniform(*LATENCY_GAP_SECONDS))
            committed_at = await queue.submit(number)
            waited = await asyncio.wait_for(started_at.get(), LATENCY_SECONDS_MAX) - committed_at
            waits.append(waited * 1000)
        stop.set()
    return {"milliseconds": waits[LATENCY_WARM_UP:]}
