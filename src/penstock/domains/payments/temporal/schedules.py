"""Keep the schedules on Temporal as the rows of the item types say."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeAlias

from msgspec import Struct

from penstock.base.log import Logger
from penstock.domains.payments.temporal.models import schedule_id
from penstock.postgres.pool import Connection, Pool
from penstock.postgres.statement import statement

LIST_ITEM_TYPES = statement(__package__, "list_item_types.sql")

LOOK_INTERVAL = timedelta(seconds=5)  # A change of a row takes effect within one usual cycle.
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
KeepSchedule: TypeAlias = Callable[[ItemTypeRow], Awaitable[str]]


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
class ScheduleKeeper:
    """Follows the rows while a process runs. Several may run: each change is idempotent."""

    pool: Pool
    keep: KeepSchedule
    log: Logger
    _kept: dict[str, ItemTypeRow] = field(default_factory=dict[str, ItemTypeRow])

    async def run(self, stop: asyncio.Event) -> None:
        """Look at the rows now and every few seconds, until `stop` is set."""
        while not stop.is_set():
            await self.look()
            try:
                async with asyncio.timeout(LOOK_INTERVAL.total_seconds()):
                    await stop.wait()
            except TimeoutError:
                continue

    async def look(self) -> dict[str, str]:
        """Bring schedules in step with rows that are new or changed; return what was done."""
        done: dict[str, str] = {}
        async with self.pool.acquire() as db:
            rows = await list_item_types(db)
        for row in rows:
            if self._kept.get(row.item_type) != row:
                change = done[row.item_type] = await self.keep(row)
                self._kept[row.item_type] = row
                self.log.info("schedule.kept", schedule_id=row.schedule_id, change=change)
        return done
