"""Phase A: schedule payments in the caller's transaction, or in an own one. Nothing waits after it.

The caller's connection is one of asyncpg, psycopg 3 or SQLAlchemy.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from msgspec.structs import replace

from penstock.base.errors import InvalidInput, PenstockError
from penstock.domains.payments.errors import UnknownItemType
from penstock.domains.payments.payment import Answer, Draft, NewPayment, Queued, Scheduled, Stored
from penstock.domains.payments.persist import look_up
from penstock.domains.payments.steps import STEPS, Steps
from penstock.postgres.pool import Pool

BATCH_MAX = 5_000  # Payments in one transaction; more of them only hold locks for longer.
PYTHON = "python"  # Who has scheduled a payment, if the caller does not say it.


@dataclass(frozen=True, slots=True, kw_only=True)
class Payments:
    """Schedules payments from Python: `app.api(Payments).schedule(...)`.

    With `connection` the payment is part of the caller's transaction; without it, it is committed
    when the call returns. Raises InvalidInput with the field, and nothing is written. `at` is for
    tests: otherwise the database's clock counts.
    """

    pool: Pool
    steps: Steps = STEPS

    async def schedule(
        self,
        payment: NewPayment,
        *,
        connection: object | None = None,
        who: str = PYTHON,
        init_workflow_id: str | None = None,
        at: datetime | None = None,
    ) -> Scheduled:
        """Schedule one payment, or raise why it is refused.

        The same payment again returns the first one; other content raises PaymentConflict.
        """
        draft = self.prepare(payment, who=who, init_workflow_id=init_workflow_id)
        (answer,) = await self.schedule_prepared([draft], connection=connection, at=at)
        if isinstance(answer, PenstockError):
            raise answer
        return answer

    async def schedule_many(
        self,
        payments: Sequence[NewPayment],
        *,
        connection: object | None = None,
        who: str = PYTHON,
        at: datetime | None = None,
    ) -> list[Answer]:
        """Schedule up to BATCH_MAX payments in one transaction, with one answer for each.

        If one is refused, the others are scheduled. To have all or none, raise it in a transaction.
        """
        drafts = [self.prepare(each, who=who) for each in payments]
        return await self.schedule_prepared(drafts, connection=connection, at=at)

    def prepare(
        self, payment: NewPayment, *, who: str, init_workflow_id: str | None = None
    ) -> Draft:
        """Check and enrich a payment; raises InvalidInput. Touches no database."""
        draft = self.steps.enrich(self.steps.validate(payment))
        return replace(draft, created_by=who, init_workflow_id=init_workflow_id)

    async def schedule_prepared(
        self,
        drafts: Sequence[Draft],
        *,
        connection: object | None = None,
        at: datetime | None = None,
    ) -> list[Answer]:
        """Schedule payments that `prepare` has returned."""
        if len(drafts) > BATCH_MAX:
            raise InvalidInput("payments", f"must be at most {BATCH_MAX:,}")
        if connection is not None:
            return await schedule_drafts(connection, drafts, steps=self.steps, at=at)
        async with self.pool.acquire() as db, db.transaction():
            return await schedule_drafts(db, drafts, steps=self.steps, at=at)


async def schedule_drafts(
    connection: object, drafts: Sequence[Draft], *, steps: Steps, at: datetime | None
) -> list[Answer]:
    """Schedule payments in the transaction of `connection`; a repeated id is looked up."""
    answers: dict[int, Answer] = {}
    waiting: dict[int, Draft] = dict(enumerate(drafts))
    while waiting:
        places = {each.payment_id: place for place, each in reversed(waiting.items())}
        found = await _schedule_once(
            connection, [waiting[place] for place in sorted(places.values())], steps=steps, at=at
        )
        answers |= {place: found[payment_id] for payment_id, place in places.items()}
        waiting = {place: each for place, each in waiting.items() if place not in answers}
    return [answers[place] for place in range(len(drafts))]


async def _schedule_once(
    connection: object, drafts: Sequence[Draft], *, steps: Steps, at: datetime | None
) -> Mapping[str, Answer]:
    """Schedule payments that all have another id; return the answers by id."""
    answers: dict[str, Answer] = {}
    known, item_types, now = await look_up(connection, drafts, at)
    fresh = [each for each in drafts if each.payment_id not in known]
    unfinished = _repeated([each for each in drafts if each.payment_id in known], known, answers)

    allowed: list[Draft] = []
    typed = [each for each in fresh if _has_type(each, item_types, answers)]
    ruled = await steps.apply_rules(connection, typed, now) if typed else ()
    for draft, answer in zip(typed, ruled, strict=True):
        if isinstance(answer, PenstockError):
            answers[draft.payment_id] = answer
        else:
            allowed.append(answer)

    if allowed:
        new = await steps.persist(connection, allowed, now)
        # Another transaction has scheduled the others since they were looked up.
        late = [each for each in allowed if each.payment_id not in new]
        if late:
            known = (await look_up(connection, late, at)).known
            unfinished += _repeated(late, known, answers)
        allowed = [each for each in allowed if each.payment_id in new]

    complete = [steps.build_context(each) for each in (*allowed, *unfinished)]
    if complete:
        timed = await steps.determine_times(connection, complete, now)
        queued = await steps.save_and_enqueue(connection, timed, now)
        new_ids = {each.payment_id for each in allowed}
        answers |= {
            payment_id: _scheduled(payment_id, each, is_new=payment_id in new_ids)
            for payment_id, each in queued.items()
        }
    return answers


def _repeated(
    drafts: Sequence[Draft], known: Mapping[str, Stored], answers: dict[str, Answer]
) -> list[Draft]:
    """Answer payments that are known; return those that were persisted and not enqueued."""
    unfinished: list[Draft] = []
    for draft in drafts:
        stored = known[draft.payment_id]
        answer = stored.answer(draft)
        if stored.is_unfinished and isinstance(answer, Scheduled):
            unfinished.append(draft)
        else:
            answers[draft.payment_id] = answer
    return unfinished


def _has_type(draft: Draft, item_types: frozenset[str], answers: dict[str, Answer]) -> bool:
    if draft.payment.item_type in item_types:
        return True
    answers[draft.payment_id] = UnknownItemType(draft.payment.item_type)
    return False


def _scheduled(payment_id: str, queued: Queued, *, is_new: bool) -> Scheduled:
    return Scheduled(
        payment_id=payment_id,
        status="SCHEDULED",
        scheduled_at=queued.scheduled_at,
        item_id=queued.item_id,
        is_new=is_new,
    )
