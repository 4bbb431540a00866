"""The timeline of a payment across domains: slot, attempts, instruction, events and mails.

What other domains know is read by functions that `compose` passes. Reads only.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias
from uuid import UUID

import msgspec
from msgspec import Struct

from penstock.domains.payments.inspect import PaymentDetail
from penstock.domains.payments.notify import key_prefix
from penstock.kernel.inspect import read_attempts
from penstock.kernel.item import ItemId
from penstock.postgres.pool import Queries


class SlotStory(Struct, frozen=True, kw_only=True):
    """The slot that decided when the payment is executed; `requested_at` is the earliest instant.

    `event_id` is its id in the slot pool.
    """

    event_id: str
    pool: str
    requested_at: datetime
    scheduled_at: datetime
    window_at: datetime
    created_at: datetime


class Attempt(Struct, frozen=True, kw_only=True):
    """One attempt to execute the payment; `outcome` is the kernel's word."""

    attempt: int
    outcome: str
    reason: str | None
    claimed_at: datetime | None
    settled_at: datetime
    duration_ms: int | None


class RailAttempt(Struct, frozen=True, kw_only=True):
    """One attempt of the instruction at the rail, or what the rail said later."""

    attempt_no: int
    state: str
    rail_code: str | None
    rail_reference: str | None
    error_code: str | None
    error_message: str | None
    claimed_at: datetime
    completed_at: datetime | None


class InstructionStory(Struct, frozen=True, kw_only=True):
    """The instruction of the payment, and what was tried; `reason` says why it waits or failed."""

    outbox_id: UUID
    sequence_id: int
    state: str
    reason: str | None
    rail_reference: str | None
    attempts: Sequence[RailAttempt]


class EventStory(Struct, frozen=True, kw_only=True):
    """An event about the payment, and whether its receivers have it."""

    id: str
    type: str
    status: str
    accepted_at: datetime
    delivered_at: datetime | None


class MailStory(Struct, frozen=True, kw_only=True):
    """A mail about the payment, and whether it was sent."""

    id: int
    subject: str
    status: str
    created_at: datetime
    ended_at: datetime | None


ReadSlot: TypeAlias = Callable[[Queries, ItemId], Awaitable[SlotStory | None]]
ReadInstruction: TypeAlias = Callable[[Queries, UUID], Awaitable[InstructionStory | None]]
# Get what the keys of the follow-ups of a payment begin with.
ReadEvents: TypeAlias = Callable[[Queries, str], Awaitable[Sequence[EventStory]]]
ReadMails: TypeAlias = Callable[[Queries, str], Awaitable[Sequence[MailStory]]]


async def read_no_slot(_db: Queries, _item_id: ItemId) -> None:
    """Return None: the domain does not run here."""


async def read_no_instruction(_db: Queries, _outbox_id: UUID) -> None:
    """Return None: the domain does not run here."""


async def read_nothing(_db: Queries, _prefix: str) -> tuple[()]:
    """Return nothing: the domain does not run here."""
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainReaders:
    """What reads the parts of the story that other domains have."""

    read_slot: ReadSlot = read_no_slot
    read_instruction: ReadInstruction = read_no_instruction
    read_events: ReadEvents = read_nothing
    read_mails: ReadMails = read_nothing


NO_READERS = DomainReaders()  # No other domain knows anything.


class Story(Struct, frozen=True, kw_only=True):
    """What happened to a payment, in each domain. A slot that was given back is not in it."""

    slot: SlotStory | None
    attempts: Sequence[Attempt]
    instruction: InstructionStory | None
    events: Sequence[EventStory]
    mails: Sequence[MailStory]


async def read_story(db: Queries, detail: PaymentDetail, readers: DomainReaders) -> Story:
    """Return what happened to a payment, as far as the domains of this process know it."""
    payment = detail.payment
    attempts = [] if detail.item is None else await read_attempts(db, ItemId(detail.item.id))
    prefix = key_prefix(payment.payment_id)
    return Story(
        slot=(
            None
            if payment.item_id is None
            else await readers.read_slot(db, ItemId(payment.item_id))
        ),
        attempts=[msgspec.convert(each, Attempt, from_attributes=True) for each in attempts],
        instruction=(
            None
            if payment.outbox_id is None
            else await readers.read_instruction(db, payment.outbox_id)
        ),
        events=await readers.read_events(db, prefix),
        mails=await readers.read_mails(db, prefix),
    )
