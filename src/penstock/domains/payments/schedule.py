"""Phase A: schedule payments in the caller's transaction or its own. Nothing waits after it.

The caller's connection is one of asyncpg, psycopg 3 or SQLAlchemy.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from msgspec.structs import replace

from penstock.base.errors import InvalidInput, PenstockError
from penstock.domains.payments.errors import UnknownItemType
from penstock.domains.payments.payment import (
    Draft,
    NewPayment,
    Queued,
    Scheduled,
    ScheduleResult,
    Stored,
)
from penstock.domains.payments.persist import look_up, look_up_and_lock
from penstock.domains.payments.steps import STEPS, Steps
from penstock.kernel import driver
from penstock.postgres.pool import Pool

BATCH_MAX = 5_000  # Payments in one transaction; more of them only hold locks for longer.
NO_IDS: frozenset[str] = frozenset()
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
    ) -> list[ScheduleResult]:
        """Schedule up to BATCH_MAX payments together, with one answer for each.

        If one is refused, the others are scheduled. To have all or none, raise it in a transaction.
        """
        _check_count(payments)
        prepared = [self._prepare_or_refuse(each, who=who) for each in payments]
        drafts = [each for each in prepared if isinstance(each, Draft)]
        answers = iter(await self.schedule_prepared(drafts, connection=connection, at=at))
        return [next(answers) if isinstance(each, Draft) else each for each in prepared]

    def prepare(
        self, payment: NewPayment, *, who: str, init_workflow_id: str | None = None
    ) -> Draft:
        """Check and enrich a payment; raises InvalidInput. Touches no database."""
        draft = self.steps.enrich(self.steps.validate(payment))
        return replace(draft, created_by=who, init_workflow_id=init_workflow_id)

    def _prepare_or_refuse(self, payment: NewPayment, *, who: str) -> Draft | InvalidInput:
        try:
            return self.prepare(payment, who=who)
        except InvalidInput as refused:
            return refused

    async def schedule_prepared(
        self,
        drafts: Sequence[Draft],
        *,
        connection: object | None = None,
        at: datetime | None = None,
    ) -> list[ScheduleResult]:
        """Schedule payments that `prepare` has returned."""
        _check_count(drafts)
        if not drafts:
            return []
        if connection is not None:
            return await schedule_drafts(connection, drafts, steps=self.steps, at=at)
        async with self.pool.acquire() as db:
            return await schedule_drafts(db, drafts, steps=self.steps, at=at)


def _check_count(payments: Sequence[object]) -> None:
    if len(payments) > BATCH_MAX:
        raise InvalidInput("payments", f"must be at most {BATCH_MAX:,}")


async def schedule_drafts(
    connection: object, drafts: Sequence[Draft], *, steps: Steps, at: datetime | None
) -> list[ScheduleResult]:
    """Schedule payments in the transaction of `connection`, or in one of its own if it has none.

    A step that raises refuses all of them, after some were persisted. So nothing of them is kept,
    and each half is scheduled for itself, until the refused ones are alone.
    """
    try:
        async with driver.nested(connection):
            return await _schedule_all(connection, drafts, steps=steps, at=at)
    except PenstockError as refused:
        if len(drafts) == 1:
            return [refused]
    middle = len(drafts) // 2
    first = await schedule_drafts(connection, drafts[:middle], steps=steps, at=at)
    return first + await schedule_drafts(connection, drafts[middle:], steps=steps, at=at)


async def _schedule_all(
    connection: object, drafts: Sequence[Draft], *, steps: Steps, at: datetime | None
) -> list[ScheduleResult]:
    """Schedule payments as one batch; a repeated id is looked up."""
    answers: dict[int, ScheduleResult] = {}
    waiting: dict[int, Draft] = dict(enumerate(drafts))
    while waiting:
        # The first of each id; the next round compares the others with what was stored.
        firsts: dict[str, int] = {}
        for place, each in waiting.items():
            firsts.setdefault(each.payment_id, place)
        found = await _schedule_once(
            connection, [waiting[place] for place in firsts.values()], steps=steps, at=at
        )
        answers |= {place: found[payment_id] for payment_id, place in firsts.items()}
        waiting = {place: each for place, each in waiting.items() if place not in answers}
    return [answers[place] for place in range(len(drafts))]


async def _schedule_once(
    connection: object, drafts: Sequence[Draft], *, steps: Steps, at: datetime | None
) -> Mapping[str, ScheduleResult]:
    """Schedule payments that all have another id; return the answers by id."""
    admitted = await admit(connection, drafts, steps=steps, at=at)
    return {**admitted.answers, **await _complete(connection, admitted, steps=steps)}


class Admitted(NamedTuple):
    """Payments that are persisted and wait for their items, and the answers to all others.

    `new` were inserted by this call; `unfinished` by an earlier one that did not enqueue them.
    """

    new: Sequence[Draft]
    unfinished: Sequence[Draft]
    answers: Mapping[str, ScheduleResult]
    now: datetime


async def admit(
    connection: object, drafts: Sequence[Draft], *, steps: Steps, at: datetime | None
) -> Admitted:
    """Look payments up, apply the rules to those that are not known, and persist the allowed ones.

    All in one transaction: what the rules have counted and locked is what `persist` adds to.
    """
    found = await look_up_and_lock(connection, drafts, at)
    fresh = [each for each in drafts if each.payment_id not in found.known]
    typed = [each for each in fresh if each.payment.item_type in found.item_types]
    ruled = await steps.apply_rules(connection, typed, found.at) if typed else ()
    allowed = [each for each in ruled if isinstance(each, Draft)]
    new_ids = await steps.persist(connection, allowed, found.at) if allowed else NO_IDS

    # Another transaction may have persisted the others since they were looked up. The rules have
    # counted those twice, so that the first answer to them counts, not what the rules say now.
    left = [each for each in typed if each.payment_id not in new_ids]
    late: Mapping[str, Stored] = (await look_up(connection, left, at)).known if left else {}
    known = _answer_known(drafts, {**found.known, **late})
    refused = _untyped(fresh, found.item_types) | _refused(typed, ruled)
    return Admitted(
        new=[each for each in allowed if each.payment_id in new_ids],
        unfinished=known.unfinished,
        answers={key: each for key, each in refused.items() if key not in late} | known.answers,
        now=found.at,
    )


async def _complete(
    connection: object, admitted: Admitted, *, steps: Steps
) -> Mapping[str, Scheduled]:
    """Determine the instants of payments that are persisted, and enqueue them."""
    complete = [steps.build_context(each) for each in (*admitted.new, *admitted.unfinished)]
    if not complete:
        return {}
    timed = await steps.determine_times(connection, complete, admitted.now)
    queued = await steps.save_and_enqueue(connection, timed, admitted.now)
    new_ids = {each.payment_id for each in admitted.new}
    return {
        payment_id: _scheduled(payment_id, each, is_new=payment_id in new_ids)
        for payment_id, each in queued.items()
    }


class _Known(NamedTuple):
    """Payments that were persisted before: answered, or still without an item."""

    answers: dict[str, ScheduleResult]
    unfinished: Sequence[Draft]


def _answer_known(drafts: Sequence[Draft], known: Mapping[str, Stored]) -> _Known:
    """Answer those of the payments that are known."""
    answers: dict[str, ScheduleResult] = {}
    unfinished: list[Draft] = []
    for draft in (each for each in drafts if each.payment_id in known):
        stored = known[draft.payment_id]
        answer = stored.answer(draft)
        if stored.is_unfinished and isinstance(answer, Scheduled):
            unfinished.append(draft)
        else:
            answers[draft.payment_id] = answer
    return _Known(answers, unfinished)


def _untyped(drafts: Sequence[Draft], item_types: frozenset[str]) -> dict[str, ScheduleResult]:
    """Refuse payments of an item type that has no lane."""
    return {
        each.payment_id: UnknownItemType(each.payment.item_type)
        for each in drafts
        if each.payment.item_type not in item_types
    }


def _refused(
    drafts: Sequence[Draft], ruled: Sequence[Draft | PenstockError]
) -> dict[str, ScheduleResult]:
    """Return the payments that the rules refuse, by id."""
    return {
        draft.payment_id: answer
        for draft, answer in zip(drafts, ruled, strict=True)
        if isinstance(answer, PenstockError)
    }


def _scheduled(payment_id: str, queued: Queued, *, is_new: bool) -> Scheduled:
    return Scheduled(
        payment_id=payment_id,
        status="SCHEDULED",
        scheduled_at=queued.scheduled_at,
        item_id=queued.item_id,
        is_new=is_new,
    )
