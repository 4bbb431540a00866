"""The four steps of a dispatch cycle on Temporal, over the kernel's own claim and settle.

The lease of the claim is what makes a claimed item stale: if a step fails, the items are given back
when it expires, and a workflow that was started meanwhile is recognised by its id.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from time import monotonic

from msgspec.structs import replace
from temporalio import activity

from penstock.base.aio import alongside
from penstock.base.log import Logger
from penstock.base.meter import Meter
from penstock.domains.payments.dispatch_log import DispatchLog
from penstock.domains.payments.engine import NO_CONTEXT
from penstock.domains.payments.loader import LoadedPayment, PaymentRef, load_payments
from penstock.domains.payments.temporal.engine import (
    StartExecutions,
    new_execution,
    read_dispatch_config,
    start_in_groups,
    to_outcome,
)
from penstock.domains.payments.temporal.models import (
    CLAIM_BATCH,
    DISPATCH_BATCH,
    READ_CONFIG,
    RECORD_RESULTS,
    ClaimedBatch,
    DispatchConfig,
    DispatchResults,
)
from penstock.kernel import metrics
from penstock.kernel.claim import Claimed, Cursor, Lease, SlotRange, claim
from penstock.kernel.item import Dead, Done, Ending, Item, ItemId, Retry, Returned
from penstock.kernel.lane import Lane, read_lane
from penstock.kernel.settle import Ended, settle
from penstock.postgres.pool import Connection, Pool
from penstock.postgres.statement import statement

BATCH_ID = statement(__package__, "batch_id.sql")
ELAPSED = statement(__package__, "elapsed.sql")
MAY_START = statement(__package__, "may_start.sql")

# How far ahead of now a cycle starts the workflows of a lane with a rate: a pause cannot call back
# what was started with a delay.
AHEAD_MAX = timedelta(minutes=1)
# Temporal takes values of 2 MB, and the longest ids of so many payments are 1.6 MB as JSON.
CYCLE_MAX = 1_000
BEAT_EVERY = timedelta(seconds=5)  # A third of what the workflow waits for a beat.
RETURNED = Returned()  # Not started: the item goes back as it was.
MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatcherActivities:
    """The activities of the DispatcherWorkflow. None of them is repeated by Temporal."""

    pool: Pool
    start: StartExecutions
    meter: Meter
    log: Logger
    worker: str = "temporal"  # The worker's name in leases.
    beat: Callable[[], None] = activity.heartbeat
    beat_every: timedelta = BEAT_EVERY

    @activity.defn(name=READ_CONFIG)
    async def read_dispatch_config(self, item_type: str) -> DispatchConfig:
        """Read the row of an item type; every cycle does, so a change needs no restart."""
        async with self.pool.acquire() as db:
            return await read_dispatch_config(db, item_type)

    @activity.defn(name=CLAIM_BATCH)
    async def claim_batch(self, config: DispatchConfig) -> ClaimedBatch:
        """Claim up to a batch of due items; the schedule keeps the interval, not the lane."""
        began_at = monotonic()
        ahead = min(AHEAD_MAX, timedelta(seconds=config.dispatch_interval_secs))
        async with self.pool.acquire() as db:
            lane = await read_lane(db, config.lane)
            # With a rate, a cycle claims the slots up to the next one.
            found = await claim(
                db,
                lane.lane_id,
                Cursor(),
                limit=min(config.batch_size, CYCLE_MAX),
                worker=self.worker,
                slots=SlotRange(ahead=ahead, waits_for_cycle=False),
            )
            if not isinstance(found, Lease):
                # The cycle ends here; one that has claimed items ends when they are settled.
                self._observe_cycle(lane, monotonic() - began_at)
                return ClaimedBatch()
            self.meter.count(metrics.CLAIMS, lane=lane.name)
            self.meter.count(metrics.CLAIMED, len(found.items), lane=lane.name)
            return await _to_batch(db, found)

    @activity.defn(name=DISPATCH_BATCH)
    async def dispatch_batch(self, batch: ClaimedBatch, config: DispatchConfig) -> DispatchResults:
        """Start a workflow for each item, with its context, and settle the batch.

        Items that may not be started any more are given back.
        """
        began_at = monotonic()
        async with self.pool.acquire() as db:
            lane = await read_lane(db, config.lane)
            payments = await load_payments(db, _to_items(batch, lane))
            elapsed: timedelta = await db.fetchval(ELAPSED, _claimed_at(batch))
            elapsed_at = monotonic()
        wanted = [
            new_execution(config, payment, start_in=start_in * MILLISECOND - elapsed)
            for payment, start_in in zip(payments, batch.start_in_ms, strict=True)
            if isinstance(payment, LoadedPayment)
        ]
        # Items whose lease is over may have been claimed again, rescheduled or cancelled.
        may_start = partial(self.pool.fetchval, MAY_START, lane.name, batch.token)
        async with alongside(self._beat_forever()):
            answers = await start_in_groups(self.start, wanted, may_start=may_start)
        outcomes: dict[str, Ending] = dict.fromkeys((each.item_id for each in wanted), RETURNED)
        for execution, answer in zip(wanted, answers, strict=False):
            outcomes[execution.item_id] = to_outcome(answer)
        took_ms = int((monotonic() - began_at) * 1000)
        ended = [
            Ended(claimed, outcomes.get(claimed.key or "", NO_CONTEXT), took_ms)
            for claimed in _to_claimed(batch, lane, payments)
        ]
        is_recorded = await self._settle(lane, batch, ended)
        self._observe_cycle(lane, elapsed.total_seconds() + monotonic() - elapsed_at)
        return DispatchResults(
            started=[each.claimed.key or "" for each in ended if isinstance(each.ending, Done)],
            failed={
                each.claimed.key or "": each.ending.reason
                for each in ended
                if isinstance(each.ending, Retry | Dead)
            },
            is_recorded=is_recorded,
        )

    @activity.defn(name=RECORD_RESULTS)
    async def record_results(
        self, batch_id: str, results: DispatchResults, config: DispatchConfig
    ) -> None:
        """Log the cycle. Its rows in the audit log were written when the batch was settled."""
        line = {
            "batch_id": batch_id,
            "lane": config.lane,
            "item_count": len(results.started),
            "failed_count": len(results.failed),
        }
        if results.is_recorded:
            self.log.info("dispatch.recorded", **line)
        else:
            self.log.warning("dispatch.overran", **line)

    async def _beat_forever(self) -> None:
        """Send heartbeats to Temporal, because a batch of starts may take long."""
        while True:
            self.beat()
            await asyncio.sleep(self.beat_every.total_seconds())

    def _observe_cycle(self, lane: Lane, seconds: float) -> None:
        self.meter.observe(metrics.CYCLE_SECONDS, seconds, lane=lane.name)

    async def _settle(self, lane: Lane, batch: ClaimedBatch, ended: Sequence[Ended]) -> bool:
        """Write the outcomes under the lease of the batch; return whether it was still held."""
        lease = Lease(
            token=batch.token,
            claimed_at=_claimed_at(batch),
            items=[each.claimed for each in ended],
        )
        log = DispatchLog(lane=lane.name, meter=self.meter)
        async with self.pool.acquire() as db, db.transaction():
            settled = await settle(
                db, lane, lease, ended=ended, closes=True, record_settled=log.record
            )
        return settled is not None


async def _to_batch(db: Connection, lease: Lease) -> ClaimedBatch:
    return ClaimedBatch(
        batch_id=await db.fetchval(BATCH_ID, lease.token),
        token=lease.token,
        claimed_at=lease.claimed_at.isoformat(),
        payment_ids=[each.key or "" for each in lease.items],
        item_ids=[each.id for each in lease.items],
        attempts=[each.attempt for each in lease.items],
        forgiven=[each.forgiven for each in lease.items],
        start_in_ms=[max(0, round(each.start_in * 1000)) for each in lease.items],
        due_ats=[each.due_at.isoformat() for each in lease.items],
    )


# The lease of a batch was written by an earlier activity, perhaps of another process.


def _claimed_at(batch: ClaimedBatch) -> datetime:
    return datetime.fromisoformat(batch.claimed_at)


def _to_items(batch: ClaimedBatch, lane: Lane) -> list[Item[PaymentRef]]:
    return [
        Item(
            id=ItemId(item_id),
            lane=lane.name,
            key=key,
            order_key=None,
            attempt=attempt - forgiven + 1,
            due_at=datetime.fromisoformat(due_at),
            not_after=None,
            token=batch.token,
            payload=PaymentRef(key),
        )
        for item_id, key, attempt, forgiven, due_at in zip(
            batch.item_ids,
            batch.payment_ids,
            batch.attempts,
            batch.forgiven,
            batch.due_ats,
            strict=True,
        )
    ]


def _to_claimed(
    batch: ClaimedBatch, lane: Lane, payments: Sequence[LoadedPayment | PaymentRef]
) -> list[Claimed]:
    return [
        Claimed(
            id=item.id,
            due_at=item.due_at,
            attempt=attempt,
            forgiven=forgiven,
            key=item.key,
            order_key=None,
            not_after=None,
            payload="",
            start_in=0.0,
            preloaded=replace(item, payload=payment),
        )
        for item, attempt, forgiven, payment in zip(
            _to_items(batch, lane), batch.attempts, batch.forgiven, payments, strict=True
        )
    ]
