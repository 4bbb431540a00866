"""Events of instructions; `compose` decides who receives them."""

from decimal import Decimal
from typing import Literal, TypeAlias
from uuid import UUID

from msgspec import Struct

from penstock.contract import announce

EventType = Literal[
    "outbox.dispatched", "outbox.failed", "outbox.unknown", "outbox.settled", "outbox.returned"
]

# States without an event are steps on the way to one of these.
EVENTS: dict[str, EventType] = {
    "DISPATCHED": "outbox.dispatched",
    "FAILED": "outbox.failed",
    "UNKNOWN": "outbox.unknown",
    "SETTLED": "outbox.settled",
    "RETURNED": "outbox.returned",
}


class OutboxEvent(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of one instruction. The destination is left out: events go to many receivers.

    `is_pending`: the rail has accepted the instruction, and settles or returns it later.
    """

    type: EventType
    outbox_id: UUID
    instruction_id: str
    participant_id: str
    sequence_id: int
    rail_type: str
    amount: Decimal
    currency: str
    rail_code: str | None = None
    rail_reference: str | None = None
    error_code: str | None = None
    is_pending: bool = False


Announce: TypeAlias = announce.Announce[OutboxEvent]
