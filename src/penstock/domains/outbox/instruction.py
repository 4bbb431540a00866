"""A payment instruction as a rail gets it, and the states that it goes through."""

from datetime import datetime
from decimal import Decimal
from typing import Any, Literal
from uuid import UUID

import msgspec

# `PENDING` waits, `DISPATCHING` is in flight, `UNKNOWN` may have been paid. A rail that settles
# later moves `DISPATCHED` to `SETTLED` or `RETURNED`.
State = Literal["PENDING", "DISPATCHING", "DISPATCHED", "UNKNOWN", "FAILED", "SETTLED", "RETURNED"]

# What a row about an attempt says. After RETRYABLE and ZOMBIE_REQUEUE, the instruction is PENDING.
AttemptState = Literal[
    "DISPATCHING",
    "DISPATCHED",
    "RETRYABLE",
    "UNKNOWN",
    "ZOMBIE_REQUEUE",
    "FAILED",
    "SETTLED",
    "RETURNED",
]


class Instruction(msgspec.Struct, frozen=True, kw_only=True):
    """One instruction to move money, written once.

    `amount` is exact, in units of `currency`. `payload` is the producer's, with amount, currency
    and destination as they were given.
    """

    outbox_id: UUID
    item_id: int
    instruction_id: str
    participant_id: str
    sequence_id: int
    idempotency_key: str
    rail_type: str
    payload: dict[str, Any]
    amount: Decimal
    currency: str
    created_at: datetime
