"""Run the demo: enqueue due items in a rate-limited lane, work on it, record the starts."""

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from secrets import token_hex
from time import monotonic

from rich.progress import Progress

from penstock.app import Penstock
from penstock.base.aio import alongside
from penstock.cli.demo.figures import Figures, Record, summarise
from penstock.kernel.inspect import balance
from penstock.kernel.item import Item, NewItem

STEP_ITEMS = 5_000  # The progress bar moves twenty times by default.
WATCH_INTERVAL = timedelta(milliseconds=100)
AHEAD_SECONDS = 0.4  # Room for twice the slots that a claim assigns ahead of time.
BATCH_SECONDS = 0.01  # A larger batch blocks the loop, and starts are late and in bursts.
GRACE_SECONDS = 30.0  # After twice the planned time and this, missing items are lost.


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """A demo that was run: its figures, and the instants at which handlers started."""

    lane: str
    figures: Figures
    instants: list[float]


async def run_flow(app: Penstock, *, items: int, rate: int, burst: int, progress: Progress) -> Flow:
    """Enqueue `items` that are due now, run them at `rate`, and summarise; opens the app."""
    lane = f"demo-{token_hex(3)}"
    record = Record()
    stop = asyncio.Event()

    @app.handler(
        lane,
        rate=rate,
        burst=burst,
        batch_size=min(10_000, max(10, int(rate * BATCH_SECONDS))),
        concurrency=min(10_000, max(100, int(rate * AHEAD_SECONDS))),
    )
    async def handle(item: Item[int]) -> None:
        record.note(item.id, monotonic())
        if len(record.calls) >= items:
            stop.set()

    async with app:
        accepted = await _enqueue(app, lane, items=items, progress=progress)
        watch = _watch(record, progress, items=items, rate=rate, stop=stop)
        async with alongside(app.run_sweeper(), watch):
            await app.run_worker(stop)
        counted = await balance(app.pool, lane)
    figures = summarise(record, accepted, done=counted.done, rate=rate, burst=burst)
    return Flow(lane=lane, figures=figures, instants=sorted(record.started_at))


async def _enqueue(app: Penstock, lane: str, *, items: int, progress: Progress) -> list[int]:
    """Enqueue all items with one due instant, and return their ids."""
    due_at = datetime.now(UTC)
    task = progress.add_task("accept", total=items)
    accepted: list[int] = []
    while len(accepted) < items:
        numbers = range(len(accepted), min(items, len(accepted) + STEP_ITEMS))
        new = [NewItem(payload=number, key=str(number), due_at=due_at) for number in numbers]
        accepted += [each.id for each in await app.enqueue_many(lane, new)]
        progress.update(task, completed=len(accepted))
    return accepted


async def _watch(
    record: Record, progress: Progress, *, items: int, rate: int, stop: asyncio.Event
) -> None:
    """Update the progress bar, and stop the worker if items are missing at the deadline."""
    task = progress.add_task("start", total=items)
    deadline = monotonic() + 2 * items / rate + GRACE_SECONDS
    while monotonic() < deadline:
        recent = record.recent(monotonic())
        progress.update(task, completed=len(record.calls), description=f"start {recent:,}/s")
        await asyncio.sleep(WATCH_INTERVAL.total_seconds())
    stop.set()
