"""What a rail is: it sends an instruction, answers questions about one, and declares what it keeps.

Adapters are plug-ins; `http_json` and `simulator` are built in. No adapter decides what a code
means: the rows of the rail's code set do.
"""

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from hashlib import sha256
from math import inf
from typing import Literal, Protocol, TypeAlias
from uuid import UUID

import msgspec

from penstock.domains.outbox.instruction import Instruction
from penstock.domains.outbox.rails.destination import DestinationScheme

# `terminal`: refused permanently. `pending`: accepted, decided later. `unknown`: may have been
# paid.
CodeClass = Literal["paid", "terminal", "retryable", "unknown", "pending"]

# How the reason of an attempt begins that found no usable rail; its name follows.
NO_RAIL = "no rail "

# The last instant, on the clock of `boot_seconds`, at which the present `send` may write its
# request. A name lookup, a connection and TLS come before that, and the machine may be suspended
# meanwhile; an adapter that can compare it right before it writes returns NotSent then.
send_not_after: ContextVar[float] = ContextVar("send_not_after", default=inf)


@dataclass(frozen=True, slots=True, kw_only=True)
class RailProperties:
    """What a rail promises. The defaults promise nothing.

    `key_valid_for`: how long a repeated idempotency key is recognised; None if keys are ignored.
    `not_found_is_final_after`: how long after a send an answer "not found" proves that the
    instruction never arrived; None if it never proves it. `can_query`: whether `query` works; if a
    rail ignores keys, it answers about the call that was paid, and else about the last one.
    `is_asynchronous`: an accepted instruction is settled or returned later. `keeps_order`: executes
    in the order of arrival.
    """

    key_valid_for: timedelta | None = None
    not_found_is_final_after: timedelta | None = None
    can_query: bool = False
    is_asynchronous: bool = False
    keeps_order: bool = False

    @property
    def ignores_keys(self) -> bool:
        """Whether two calls with one key are two payments."""
        return self.key_valid_for is None


class RailAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The rail answered with a code; its class decides what follows.

    `amount` and `currency` are what the rail says that it moved, if it says so.
    """

    code: str
    reference: str | None = None
    message: str | None = None
    amount: Decimal | None = None
    currency: str | None = None


@dataclass(frozen=True, slots=True)
class NotSent:
    """The instruction provably did not reach the rail, such as a refused connection."""

    reason: str


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """The request may have arrived, and there is no answer."""

    reason: str


@dataclass(frozen=True, slots=True)
class NotFound:
    """The rail does not know the instruction; what that proves, its properties say."""


SendResult: TypeAlias = RailAnswer | NotSent | NoAnswer
QueryResult: TypeAlias = RailAnswer | NotFound | NoAnswer


class Rail(Protocol):
    """One rail as its adapter offers it. Both calls return within `timeout` and never raise.

    The key that a rail gets is the same for every attempt of an instruction.
    """

    @property
    def properties(self) -> RailProperties: ...

    async def send(self, instruction: Instruction, *, timeout: timedelta) -> SendResult: ...

    async def query(self, instruction: Instruction, *, timeout: timedelta) -> QueryResult: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedRail:
    """A rail's row with its adapter and its codes, as the handler uses it.

    `promises_since`: the row promises nothing about calls of attempts that were claimed before, as
    those were made under another row. None if there was no other.
    """

    rail_type: str
    rail: Rail
    codes: Mapping[str, CodeClass]
    timeout: timedelta
    concurrency_max: int
    destination_scheme: DestinationScheme = "any"
    promises_since: datetime | None = None

    def classify(self, code: str) -> CodeClass:
        """Return the class of a code; one that has no row is unknown."""
        return self.codes.get(code, "unknown")


class Rails(Protocol):
    """Finds a rail by its type; None if it has no row, or no adapter in this process."""

    async def find(self, rail_type: str) -> LoadedRail | None: ...


def rail_key(instruction: Instruction) -> str:
    """Return the idempotency key that a rail gets, in the form of a UUID.

    It is made from what the producer gave, and from nothing else: every attempt has the same key,
    also after the database was restored from a backup and the producer has sent again.
    """
    given = f"{len(instruction.instruction_id)}:{instruction.instruction_id}"
    digest = sha256(f"{given}:{instruction.idempotency_key}".encode()).digest()
    return str(UUID(bytes=digest[:16], version=5))
