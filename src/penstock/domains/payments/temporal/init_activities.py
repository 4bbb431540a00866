"""The steps of the first phase on Temporal: the same functions that scheduling a payment calls.

A draft passes through the history as JSON. Each step may run twice, and a repeat changes nothing.
A payment that is refused fails its workflow at once, and ends as REJECTED if an earlier step has
persisted it; any other failure is repeated.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

import msgspec
from msgspec.structs import replace
from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from penstock.base.errors import Conflict, InvalidInput, NotFound, PenstockError
from penstock.domains.payments import wire
from penstock.domains.payments.errors import PaymentClaimed, UnknownItemType
from penstock.domains.payments.payment import Draft, ScheduleResult
from penstock.domains.payments.persist import LookedUp, look_up
from penstock.domains.payments.schedule import admit
from penstock.domains.payments.steps import Steps
from penstock.domains.payments.temporal.models import (
    APPLY_RULES,
    BUILD_CONTEXT,
    DETERMINE_TIME,
    ENRICH,
    PERSIST,
    SAVE_AND_ENQUEUE,
    VALIDATE,
    Schedulable,
)
from penstock.kernel.driver import translated
from penstock.postgres.pool import Connection, Pool
from penstock.postgres.statement import statement

READ_STATUS = statement(__package__, "read_status.sql")
SAVE_CONTEXT = statement(__package__, "save_context.sql")
REJECT_UNFINISHED = statement(__package__, "reject_unfinished.sql")

REASON_LENGTH_MAX = 1_000  # As the table's CHECK.

WHO = "temporal"  # Who has scheduled the payment.

WithDatabase: TypeAlias = Callable[[Connection, Draft, LookedUp], Awaitable[Draft]]

_draft = msgspec.json.Decoder(Draft)


@dataclass(frozen=True, slots=True, kw_only=True)
class InitActivities:
    """The activities of the PaymentInitWorkflow."""

    pool: Pool
    steps: Steps

    @activity.defn(name=VALIDATE)
    async def validate_payment(self, payment_id: str, request_json: str) -> str:
        """Return the draft of a request, as `POST /payments` takes it."""
        with refusals():
            payment = wire.read_new_payment(request_json, name="request")
            if payment.payment_id != payment_id:
                raise InvalidInput("payment_id", "is not the one that the workflow was started for")
            draft = self.steps.validate(payment)
            workflow_id = activity.info().workflow_id
            return _text(replace(draft, created_by=WHO, init_workflow_id=workflow_id))

    @activity.defn(name=ENRICH)
    async def enrich_payment(self, _payment_id: str, draft_json: str) -> str:
        """Return the draft with what is known about its parties."""
        with refusals():
            return _text(self.steps.enrich(_draft.decode(draft_json)))

    @activity.defn(name=APPLY_RULES)
    async def apply_rules(self, _payment_id: str, draft_json: str) -> str:
        """Refuse a payment that a rule forbids."""
        with refusals():
            return await self._run(_draft.decode(draft_json), self._apply_rules)

    @activity.defn(name=PERSIST)
    async def persist_payment(self, _payment_id: str, draft_json: str) -> str:
        """Apply the rules again, and insert the payment as SCHEDULED in the same transaction.

        Between the two steps other payments may have been scheduled, which the rules count.
        """
        with refusals():
            return await self._run(_draft.decode(draft_json), self._persist)

    @activity.defn(name=BUILD_CONTEXT)
    async def build_context(self, _payment_id: str, draft_json: str) -> str:
        """Return the draft with the context of its execution."""
        draft = _draft.decode(draft_json)
        async with self._rejecting(draft):
            return _text(self.steps.build_context(draft))

    @activity.defn(name=DETERMINE_TIME)
    async def determine_time(self, _payment_id: str, draft_json: str) -> Schedulable:
        """Return what is to be enqueued, with its instant."""
        draft = _draft.decode(draft_json)
        async with self._rejecting(draft):
            timed = _draft.decode(await self._run(draft, self._determine_time))
        return Schedulable(
            item_type=timed.payment.item_type,
            item_id=timed.payment_id,
            context_json=msgspec.json.encode(timed.context).decode(),
            context_version=timed.context_version,
            exec_time=None if timed.scheduled_at is None else timed.scheduled_at.isoformat(),
        )

    async def _apply_rules(self, db: Connection, draft: Draft, found: LookedUp) -> Draft:
        if draft.payment_id in found.known:
            return draft
        (answer,) = await self.steps.apply_rules(db, [draft], found.at)
        if isinstance(answer, PenstockError):
            raise answer
        return answer

    async def _persist(self, db: Connection, draft: Draft, found: LookedUp) -> Draft:
        admitted = await admit(db, [draft], steps=self.steps, at=found.at)
        _check_answer(admitted.answers.get(draft.payment_id))
        return next(iter(admitted.new), draft)

    async def _determine_time(self, db: Connection, draft: Draft, found: LookedUp) -> Draft:
        (timed,) = await self.steps.determine_times(db, [draft], found.at)
        return timed

    async def _run(self, draft: Draft, step: WithDatabase) -> str:
        """Run a step in one transaction, unless the payment is known with other content."""
        async with self.pool.acquire() as db, db.transaction():
            found = await look_up(db, [draft], None)
            _check(draft, found)
            return _text(await step(db, draft, found))

    def _rejecting(self, draft: Draft) -> AbstractAsyncContextManager[None]:
        item_type, content_hash = draft.payment.item_type, draft.content_hash
        return rejecting(
            self.pool, draft.payment_id, item_type=item_type, content_hash=content_hash
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextActivities:
    """The activity with which every first phase ends, whatever its item type."""

    pool: Pool

    @activity.defn(name=SAVE_AND_ENQUEUE)
    async def save_context_and_enqueue(self, item: Schedulable) -> str:
        """Save the context and enqueue the item in one transaction; a repeat changes nothing."""
        exec_time = None if item.exec_time is None else datetime.fromisoformat(item.exec_time)
        async with (
            rejecting(self.pool, item.item_id, item_type=item.item_type),
            self.pool.acquire() as db,
            db.transaction(),
        ):
            with translated(item.item_type):
                row = await db.fetchrow(
                    SAVE_CONTEXT,
                    item.item_type,
                    item.item_id,
                    item.context_json,
                    item.context_version,
                    exec_time,
                )
            assert row is not None, "one row for each item"
            if row["is_new"]:
                await _check_unfinished(db, item)
        scheduled_at: datetime = row["scheduled_at"]
        return scheduled_at.isoformat()


async def _check_unfinished(db: Connection, item: Schedulable) -> None:
    """Raise PaymentClaimed for a payment that has ended before it had an item.

    Read after the payment got its item, which has locked it: a person may cancel it meanwhile. The
    item, and the slot that it has taken, are then rolled back.
    """
    status = await db.fetchval(READ_STATUS, item.item_id, item.item_type)
    if status not in {None, "SCHEDULED"}:
        raise PaymentClaimed(item.item_id, status)


@contextmanager
def refusals() -> Generator[None]:
    """Raise a refusal that a repeat would not change as the end of the payment's workflow."""
    try:
        yield
    except (InvalidInput, NotFound, Conflict) as refused:
        raise _failure(refused) from refused


@asynccontextmanager
async def rejecting(
    pool: Pool, payment_id: str, *, item_type: str, content_hash: str | None = None
) -> AsyncGenerator[None]:
    """Do the same as `refusals`, and reject the payment if it was persisted and has no item.

    Nobody could end it otherwise: it would keep its place in the sum of its day. A lane that does
    not exist yet is no refusal: the step is repeated until an operator has added it.
    """
    try:
        yield
    except (InvalidInput, UnknownItemType, Conflict) as refused:
        reason = str(refused)[:REASON_LENGTH_MAX]
        async with pool.acquire() as db:
            await db.execute(REJECT_UNFINISHED, payment_id, reason, item_type, content_hash)
        raise _failure(refused) from refused


def _failure(refused: PenstockError) -> ApplicationError:
    return ApplicationError(
        str(refused),
        type=refused.code,
        non_retryable=True,
        # The caller's fault, and the failure of the workflow: no traceback in the worker's log.
        category=ApplicationErrorCategory.BENIGN,
    )


def _check(draft: Draft, found: LookedUp) -> None:
    if draft.payment.item_type not in found.item_types:
        raise UnknownItemType(draft.payment.item_type)
    stored = found.known.get(draft.payment_id)
    _check_answer(None if stored is None else stored.answer(draft))


def _check_answer(answer: ScheduleResult | None) -> None:
    """Raise why a payment that is known cannot be scheduled any more."""
    if isinstance(answer, PenstockError):
        raise answer
    if answer is not None and answer.item_id is None and answer.status != "SCHEDULED":
        raise PaymentClaimed(answer.payment_id, answer.status)


def _text(draft: Draft) -> str:
    return msgspec.json.encode(draft).decode()
