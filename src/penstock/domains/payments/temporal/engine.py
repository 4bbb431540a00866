"""Execute items on Temporal: one workflow for each, started with its wait as a delay.

The id of the workflow is that of the item, and Temporal refuses a second run under it. That holds
as long as the namespace keeps closed workflows; the payment's own status guards its execution for
ever.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import TypeAlias

from msgspec import Struct

from penstock.base.clock import Clock, instant
from penstock.base.errors import InvalidInput
from penstock.base.log import Logger
from penstock.domains.payments.errors import UnknownPayment
from penstock.domains.payments.lanes import ATTEMPTS_MAX
from penstock.domains.payments.loader import LoadedPayment
from penstock.domains.payments.temporal.models import DispatchConfig, exec_workflow_id
from penstock.kernel.item import DONE, Item, Outcome, Retry, Snooze
from penstock.postgres.pool import Connection, Pool
from penstock.postgres.statement import statement

READ_DISPATCH_CONFIG = statement(__package__, "read_dispatch_config.sql")

IS_ENABLED = statement(__package__, "is_enabled.sql")
READ_EXECUTION = statement(__package__, "read_execution.sql")

STARTABLE = frozenset({"SCHEDULED", "ACCEPTED"})  # A payment whose steps are not all done.
GROUP = 100  # Workflows started between two looks at the lane: as many as are started at once.
# For all starts of a batch. A handler, and a step of the dispatcher, may take a minute: an attempt
# that is cut off then would count, whereas a start that Temporal did not answer does not.
START_WITHIN = timedelta(seconds=40)
# After a start that Temporal did not answer: about one cycle later.
RETRY_AFTER = timedelta(seconds=5)
PAUSED = Snooze(RETRY_AFTER, "the lane was paused before the start")


class NewExecution(Struct, frozen=True, kw_only=True):
    """A workflow to start, with the id of the item and its context as arguments."""

    workflow_id: str
    workflow_type: str
    task_queue: str
    item_id: str
    context_json: str
    start_delay: timedelta


class NotStarted(Struct, frozen=True):
    """Why a workflow was not started. `is_refused`: Temporal would refuse it again."""

    reason: str
    is_refused: bool


# Why a payment is not started by hand while its item is in the queue, by the status there.
WAITING = {
    "DEAD": "its item is dead: correct the cause, then `penstock dead replay`",
    "HELD": "its item is held: `penstock item release` lets the lane start it",
}
WAITS_IN_LANE = "the payment waits in its lane, which starts it"

TOO_SLOW = NotStarted("temporal: unavailable: the starts took too long", is_refused=False)

# Starts workflows; an id that was started before counts as started.
StartExecutions: TypeAlias = Callable[
    [Sequence[NewExecution]], Awaitable[Sequence[NotStarted | None]]
]


@dataclass(frozen=True, slots=True, kw_only=True)
class TemporalEngine:
    """Starts the workflows of a batch that a worker has claimed."""

    pool: Pool
    clock: Clock
    start: StartExecutions
    log: Logger

    async def handle_many(self, items: list[Item[LoadedPayment]]) -> list[Outcome]:
        """Start a workflow for each item; return which of them were started.

        The items are of one lane: they were loaded by its item type, and so have one config.
        """
        async with self.pool.acquire() as db:
            config = await read_dispatch_config(db, items[0].payload.item_type)
        now = instant(self.clock)
        wanted = [new_execution(config, item.payload, start_in=item.due_at - now) for item in items]
        is_enabled = partial(self.pool.fetchval, IS_ENABLED, config.lane)
        answers = await start_in_groups(self.start, wanted, may_start=is_enabled)
        failed = [each for each in answers if each is not None]
        if failed:
            self.log.warning("temporal.failed", item_count=len(failed), reason=failed[0].reason)
        return [
            *(to_outcome(each) for each in answers),
            *([PAUSED] * (len(items) - len(answers))),
        ]


async def start_in_groups(
    start: StartExecutions,
    executions: Sequence[NewExecution],
    *,
    may_start: Callable[[], Awaitable[bool]],
    within: timedelta = START_WITHIN,
) -> list[NotStarted | None]:
    """Start workflows until `may_start` returns false; return the answers up to there.

    A kill switch is then followed by the starts of one group at most. After a group of which
    Temporal has not answered a single start, the rest are not tried and have the same answer.
    """
    ends_at = asyncio.get_running_loop().time() + within.total_seconds()
    answers: list[NotStarted | None] = []
    for first in range(0, len(executions), GROUP):
        if not await may_start():
            break
        group = await _start_until(ends_at, start, executions[first : first + GROUP])
        answers += group
        if all(each is not None and not each.is_refused for each in group):
            answers += [group[-1]] * (len(executions) - len(answers))
            break
    return answers


async def _start_until(
    ends_at: float, start: StartExecutions, executions: Sequence[NewExecution]
) -> Sequence[NotStarted | None]:
    """Start workflows; those that were started without an answer are recognised by their ids."""
    try:
        async with asyncio.timeout_at(ends_at):
            return await start(executions)
    except TimeoutError:
        return [TOO_SLOW] * len(executions)


def new_execution(
    config: DispatchConfig, payment: LoadedPayment, *, start_in: timedelta
) -> NewExecution:
    """Return the workflow of an item that may run in `start_in`, or at once if that is over."""
    jitter = timedelta(milliseconds=random.uniform(0, config.jitter_window_ms))  # noqa: S311
    return NewExecution(
        workflow_id=exec_workflow_id(payment.item_type, payment.payment_id),
        workflow_type=config.exec_workflow_type,
        task_queue=config.exec_task_queue,
        item_id=payment.payment_id,
        context_json=payment.context_json,
        start_delay=max(timedelta(0), start_in) + jitter,
    )


async def read_execution(db: Connection, payment_id: str) -> NewExecution:
    """Return the workflow of a payment that was dispatched, for a person who starts it again.

    Raises UnknownPayment, and InvalidInput for a payment that waits, was executed or has ended.
    """
    row = await db.fetchrow(READ_EXECUTION, payment_id)
    if row is None:
        raise UnknownPayment(payment_id)
    # Before the place of the item: that of a cancelled payment is in no lane any more.
    if row["status"] not in STARTABLE:
        raise InvalidInput("payment_id", f"the payment is {row['status']}, and is not started")
    if row["context_json"] is None:
        raise InvalidInput("payment_id", "the payment was not enqueued: schedule it again")
    if row["waits_as"] is not None:
        raise InvalidInput("payment_id", WAITING.get(row["waits_as"], WAITS_IN_LANE))
    payment = LoadedPayment(
        payment_id=row["payment_id"],
        item_type=row["item_type"],
        engine=row["engine"],
        context_json=row["context_json"],
        context_version=row["context_version"],
    )
    config = await read_dispatch_config(db, payment.item_type)
    return new_execution(replace(config, jitter_window_ms=0), payment, start_in=timedelta(0))


def to_outcome(failure: NotStarted | None) -> Outcome:
    """Return the outcome of a start: a failed one returns the item, and costs it an attempt."""
    if failure is None:
        return DONE
    if failure.is_refused:
        return Retry(failure.reason)
    return Retry(failure.reason, after=RETRY_AFTER, attempts_max=ATTEMPTS_MAX)


async def read_dispatch_config(db: Connection, item_type: str) -> DispatchConfig:
    """Return the row of an item type, as it is now; one that does not exist is not enabled."""
    row = await db.fetchrow(READ_DISPATCH_CONFIG, item_type)
    if row is None:
        return DispatchConfig(
            item_type=item_type, lane="", is_enabled=False, batch_size=0,
            dispatch_interval_secs=0, jitter_window_ms=0, exec_workflow_type="", exec_task_queue="",
        )  # fmt: skip
    return DispatchConfig(**dict(row))
