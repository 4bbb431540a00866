"""Our side of the bench: the verbs that only our bars need, served by a child as a peer's are."""

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from bench.environment import ROOT, Launch
from bench.lane import Lane
from bench.peers.protocol import Answer, Queue, drain, serve


class Ours(Queue, Protocol):
    """A `Queue` (see `bench.peers.protocol`) with the verbs that only our bars need.

    `work` must await `handle(number)` with the item's real number, the `n` of its payload.
    """

    async def insert_future(self, first: int, count: int) -> None:
        """Commit items due in a year, in the lane that `work` works on."""
        ...

    async def insert_finished(self, first: int, count: int) -> None:
        """Leave items that are done, with body and attempt, as if they had been dispatched."""
        ...

    async def insert_ordered(self, first: int, count: int, *, keys: int) -> None:
        """Commit due items with ordering key `number % keys`, and order the lane per key."""
        ...

    async def limit_rate(self, per_second: int, *, burst: int) -> None:
        """Give the lane that `work` works on a rate limit."""
        ...

    async def insert_limited(self, first: int, keys: list[int], *, due_ats: list[float]) -> None:
        """Commit items with these limit keys, due at these seconds since 1970."""
        ...

    async def limit_keys(self, per_second: float) -> None:
        """Give each limit key of the lane that `work` works on a rate."""
        ...


# `penstock up` with a lane that has nothing to do; the database comes as PENSTOCK_DATABASE_URL.
UP: Final = (sys.executable, "-m", "penstock.cli", "up", "--app", "bench.resting:app")
UP_VARIABLES: Final = {"PENSTOCK_PORT": "0"}

LAUNCH: Final = Launch(
    command=(sys.executable, "-m", "bench.ours"),
    variables={"PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))},
)


def serve_ours(queue: Ours) -> None:
    """Serve the common verbs and those of `Ours`."""
    serve(
        queue,
        more={
            "fill_future": lambda **a: _in_chunks(queue, queue.insert_future, **a),
            "fill_finished": lambda **a: _in_chunks(queue, queue.insert_finished, **a),
            "fill_ordered": lambda keys, **a: _in_chunks(
                queue, lambda first, count: queue.insert_ordered(first, count, keys=keys), **a
            ),
            "drain_ordered": lambda **a: drain_ordered(queue, **a),
            "limit_rate": lambda per_second, burst: _limit_rate(queue, per_second, burst),
            "fill_limited": lambda **a: _fill_limited(queue, **a),
            "starts": lambda **a: _starts(queue, **a),
        },
    )


async def _in_chunks(
    queue: Ours, insert: Callable[[int, int], Awaitable[None]], *, first: int, items: int
) -> Answer:
    for offset in range(0, items, queue.chunk):
        await insert(first + offset, min(queue.chunk, items - offset))
    return {}


async def drain_ordered(
    queue: Queue, *, items: int, keys: int, whole: bool, seconds_max: float
) -> Answer:
    """Drain, and count the items that started after a later one of their key.

    Also the microseconds of CPU time that this process took for an item.
    """
    cpu_before = time.process_time()
    last = [-1] * keys
    inversions = 0

    async def handle(number: int) -> None:
        nonlocal inversions
        key = number % keys
        inversions += number < last[key]
        last[key] = max(number, last[key])

    answer = await drain(queue, items=items, whole=whole, seconds_max=seconds_max, handle=handle)
    cpu = 1e6 * (time.process_time() - cpu_before) / items
    return {**answer, "inversions": inversions, "cpu": cpu}


async def _limit_rate(queue: Ours, per_second: int, burst: int) -> Answer:
    await queue.limit_rate(per_second, burst=burst)
    return {}


async def _fill_limited(
    queue: Ours, *, first: int, keys: list[int], due_ats: list[float], per_second: float
) -> Answer:
    await queue.limit_keys(per_second)
    await queue.insert_limited(first, keys, due_ats=due_ats)
    return {}


async def _starts(queue: Ours, *, seconds: float) -> Answer:
    """Work for so long; return when each handler started, and with which item.

    CLOCK_MONOTONIC is one clock for all processes of a machine, so the lists can be merged.
    """
    starts: list[float] = []
    items: list[int] = []

    async def handle(number: int) -> None:
        starts.append(time.clock_gettime(time.CLOCK_MONOTONIC))
        items.append(number)

    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(queue.work(handle, stop=stop, mode="throughput"))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), seconds)
        stop.set()
    return {"starts": starts, "items": items}


if __name__ == "__main__":
    serve_ours(Lane())
