"""Payments that come as messages of a topic: JSON as over REST. Unknown fields are refused."""

import asyncio
from collections.abc import Sequence

from penstock.base.errors import InvalidInput, PenstockError
from penstock.domains.payments import wire
from penstock.domains.payments.batcher import PaymentBatcher
from penstock.domains.payments.payment import Draft
from penstock.postgres.pool import database_away

KAFKA = "kafka"  # Who has scheduled a payment.


async def accept_messages(
    batcher: PaymentBatcher, messages: Sequence[tuple[bytes | None, str]]
) -> list[str | None]:
    """Schedule payments that come as messages, each with its place in the topic.

    Returns for each why it can never be scheduled, or None: it is. Raises DatabaseAway; then some
    may be scheduled already, and a repeat of all is harmless.
    """
    values = [value for value, _ in messages]
    drafts = await asyncio.to_thread(_read_all, batcher, values)
    sound = {place: each for place, each in enumerate(drafts) if isinstance(each, Draft)}
    reasons = {place: str(each) for place, each in enumerate(drafts) if place not in sound}
    if sound:
        with database_away():
            answers = await batcher.accept_many(list(sound.values()))
        for place, answer in zip(sound, answers, strict=True):
            if isinstance(answer, PenstockError):
                reasons[place] = _reason(answer)
    return [reasons.get(place) for place in range(len(messages))]


def _read_all(
    batcher: PaymentBatcher, values: Sequence[bytes | None]
) -> list[Draft | InvalidInput]:
    return [_read(batcher, value) for value in values]


def _read(batcher: PaymentBatcher, value: bytes | None) -> Draft | InvalidInput:
    if value is None:
        return InvalidInput("message", "is empty")
    try:
        payment = wire.read_new_payment(value, name="message")
        return batcher.payments.prepare(payment, who=KAFKA)
    except InvalidInput as refused:
        return refused


def _reason(refused: PenstockError) -> str:
    """Return why a payment is refused permanently; what an operator can correct is raised."""
    if refused.status >= 500:
        raise refused
    return str(refused)
