"""A handler that blocks the event loop is named in the log while it blocks."""

import asyncio
import threading
from typing import Any

from penstock.base.log import Logger
from penstock.base.meter import Meter
from penstock.kernel.enqueue import enqueue
from penstock.kernel.item import Item, NewItem
from penstock.kernel.lane import Lane, set_lane
from penstock.kernel.worker import Worker
from penstock.postgres.pool import Connection, Pool
from tests.kernel.scene import PATIENCE, SECOND, kind_of, own_gate


class Recorder:
    """A logger that lets another thread wait for `loop.blocked`."""

    def __init__(self) -> None:
        self.blocked = threading.Event()
        self.line: dict[str, Any] = {}

    def warning(self, event: str, **values: Any) -> None:
        if event == "loop.blocked" and not self.blocked.is_set():
            self.line = values
            self.blocked.set()

    def bind(self, **_values: Any) -> Logger:
        return self

    def debug(self, event: str, **values: Any) -> None: ...
    def info(self, event: str, **values: Any) -> None: ...
    def error(self, event: str, **values: Any) -> None: ...


async def test_a_handler_that_blocks_the_loop_is_named_while_it_blocks(
    dsn: str, *, pool: Pool, db: Connection, lane: Lane
) -> None:
    """Its lease cannot be renewed meanwhile, and its item may run twice."""
    await set_lane(db, lane.name, who="test", lease=SECOND)
    log, stop, was_named = Recorder(), asyncio.Event(), []

    async def resize(item: Item[Any]) -> None:  # noqa: ARG001
        was_named.append(log.blocked.wait(PATIENCE))
        stop.set()

    await enqueue(db, lane.name, NewItem(payload=None))
    worker = Worker(
        dsn=dsn,
        pool=pool,
        kinds=[kind_of(lane, resize)],
        gate=own_gate(),
        log=log,
        meter=Meter(),
    )
    async with asyncio.timeout(2 * PATIENCE):
        await worker.run(stop)

    assert was_named[0]
    assert (log.line["lane"], log.line["handler"].rpartition(".")[2]) == (lane.name, "resize")
    assert log.line["blocked_seconds"] >= 0.3
    assert "where" in log.line
