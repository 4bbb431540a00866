"""Bring the schedules on Temporal in step with the rows of the item types."""

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from secrets import token_hex
from typing import TypeAlias

from msgspec import Struct

from penstock.base.errors import PenstockError
from penstock.base.log import Logger
from penstock.domains.payments.temporal.models import schedule_id
from penstock.kernel.heartbeat import remove_worker, report_worker
from penstock.postgres.pool import Connection, Pool
from penstock.postgres.statement import statement

LIST_ITEM_TYPES = statement(__package__, "list_item_types.sql")

LOOK_INTERVAL = timedelta(seconds=5)  # A change of a row takes effect within one usual cycle.
# All schedules are compared once a minute: a person may delete one on Temporal, or a namespace may
# be restored from a backup, and without its schedule an item type is not dispatched.
LOOKS_PER_COMPARISON = 12
INTERVAL_MIN = timedelta(seconds=1)  # The least that a schedule on Temporal can have.


class ItemTypeRow(Struct, frozen=True, kw_only=True):
    """How an item type is dispatched. `interval` is that of its schedule, if it has one."""

    item_type: str
    lane: str
    engine: str
    is_enabled: bool
    exec_workflow_type: str
    exec_task_queue: str
    interval: timedelta

    @property
    def schedule_id(self) -> str:
        return schedule_id(self.item_type)

    @property
    def has_schedule(self) -> bool:
        return self.engine == "temporal_schedule"


# Creates or changes the schedule of an item type, or removes it; returns what was done.
SyncSchedule: TypeAlias = Callable[[ItemTypeRow], Awaitable[str]]


async def list_item_types(db: Connection) -> list[ItemTypeRow]:
    """Return all item types, by name."""
    rows = await db.fetch(LIST_ITEM_TYPES)
    return [
        ItemTypeRow(
            item_type=row["item_type"],
            lane=row["lane"],
            engine=row["engine"],
            is_enabled=row["is_enabled"],
            exec_workflow_type=row["exec_workflow_type"],
            exec_task_queue=row["exec_task_queue"],
            interval=max(INTERVAL_MIN, row["interval"]),
        )
        for row in rows
    ]


@dataclass(slots=True, kw_only=True)
class ScheduleSync:
    """Follows the rows while a process runs. Several may run: each change is idempotent.

    It reports the process as a worker of the lanes that schedules dispatch: otherwise it would look
    as if nothing ran them.
    """

    pool: Pool
    sync: SyncSchedule
    log: Logger
    worker: str = field(
        default_factory=lambda: f"temporal:{socket.gethostname()}:{os.getpid()}:{token_hex(2)}"
    )
    _synced: dict[str, ItemTypeRow] = field(default_factory=dict[str, ItemTypeRow])
    _looks: int = 0  # Since all schedules were compared.

    async def run(self, stop: asyncio.Event) -> None:
        """Look at the rows now and every few seconds, until `stop` is set."""
        while not stop.is_set():
            await self.look()
            try:
                async with asyncio.timeout(LOOK_INTERVAL.total_seconds()):
                    await stop.wait()
            except TimeoutError:
                continue
        await remove_worker(self.pool, self.worker)

    async def look(self) -> dict[str, str]:
        """Bring schedules in step with rows that are new or changed; return what was done.

        Now and then also with rows that are not. A comparison that fails is due at the next look.
        """
        async with self.pool.acquire() as db:
            rows = await list_item_types(db)
            await report_worker(db, self.worker, [row.lane for row in rows if row.has_schedule])
        self._looks += 1
        is_due = self._looks >= LOOKS_PER_COMPARISON
        done: dict[str, str] = {}
        failures: list[Exception] = []
        for row in rows:
            if is_due or self._synced.get(row.item_type) != row:
                try:
                    done[row.item_type] = await self._sync(row)
                except PenstockError as failure:  # Such as a schedule that Temporal refuses.
                    failures.append(failure)
        if failures:
            raise failures[0]
        if is_due:
            self._looks = 0
        return done

    async def _sync(self, row: ItemTypeRow) -> str:
        change = await self.sync(row)
        line = {"schedule_id": row.schedule_id, "change": change}
        if self._synced.get(row.item_type) != row:
            self.log.info("schedule.compared", **line)
        elif change != "unchanged":
            self.log.warning("schedule.restored", **line)
        self._synced[row.item_type] = row
        return change
