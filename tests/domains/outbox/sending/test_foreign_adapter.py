"""Whatever an adapter of another package does, its attempt ends and is archived."""

from dataclasses import dataclass, replace
from datetime import timedelta
from random import Random
from typing import Any

import pytest

from penstock.domains.outbox.instruction import Instruction
from penstock.domains.outbox.rails.rail import (
    LoadedRail,
    NoAnswer,
    NotSent,
    RailAnswer,
    RailProperties,
)
from tests.domains.outbox.sending.scene import Outbox

# What PostgreSQL refuses, in a text that its index cannot compress either.
HOSTILE = "\x00\ud800" + "".join(
    chr(Random(number).randrange(0x20000, 0x2A000)) for number in range(2_000)
)


NO_PROMISES = RailProperties()


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnRail:
    """An adapter of another package: it returns, or raises, whatever it was given."""

    sent: Any
    found: Any = None
    properties: RailProperties = NO_PROMISES

    async def send(self, instruction: Instruction, *, timeout: timedelta) -> Any:  # noqa: ARG002
        if isinstance(self.sent, BaseException):
            raise self.sent
        return self.sent

    async def query(self, instruction: Instruction, *, timeout: timedelta) -> Any:  # noqa: ARG002
        if isinstance(self.found, BaseException):
            raise self.found
        return self.found


def own(rail: LoadedRail, sent: object, **more: Any) -> LoadedRail:
    return replace(rail, rail=OwnRail(sent=sent, **more))


def hostile(code: str) -> RailAnswer:
    return RailAnswer(code=code, reference=HOSTILE, message=HOSTILE)


@pytest.mark.parametrize(
    ("sent", "state"),
    [
        (hostile("PAID"), "DISPATCHED"),
        (hostile("REJECTED"), "FAILED"),
        (hostile("BUSY"), "RETRYABLE"),
        (hostile(HOSTILE), "UNKNOWN"),
        (NoAnswer(HOSTILE), "UNKNOWN"),
        (NotSent(HOSTILE), "RETRYABLE"),
        (RailAnswer(code="PAID", reference=17), "DISPATCHED"),  # pyright: ignore[reportArgumentType]
        (RailAnswer(code=["PAID"]), "UNKNOWN"),  # pyright: ignore[reportArgumentType]
        (None, "UNKNOWN"),
        ("PAID", "UNKNOWN"),
        (RuntimeError(HOSTILE), "UNKNOWN"),
        (SystemExit(1), "UNKNOWN"),
    ],
    ids=[
        "paid", "refused", "busy", "code", "no answer", "not sent", "number", "list", "none",
        "text", "raises", "exits",
    ],
)  # fmt: skip
async def test_whatever_an_adapter_returns_is_archived(
    outbox: Outbox, sent: object, state: str
) -> None:
    """A text that PostgreSQL refuses would roll back the settle of the whole lease, for ever."""
    assert outbox.rails.rail is not None
    outbox.rails.rail = own(outbox.rails.rail, sent)
    outbox_id = await outbox.send()

    await outbox.run()

    assert await outbox.states(outbox_id) == [state]


@pytest.mark.parametrize(
    ("found", "states"),
    [
        (hostile("PAID"), ["RETRYABLE", "DISPATCHED"]),
        (hostile("REJECTED"), ["RETRYABLE", "FAILED"]),
        (None, ["RETRYABLE"]),
        (RuntimeError(HOSTILE), ["RETRYABLE"]),
    ],
    ids=["paid", "refused", "none", "raises"],
)
async def test_whatever_a_query_of_an_adapter_returns_is_archived(
    outbox: Outbox, found: object, states: list[str]
) -> None:
    """A query that fails makes no call, so it raises no doubt either."""
    assert outbox.rails.rail is not None
    outbox.rails.rail = own(
        outbox.rails.rail, hostile("BUSY"), found=found, properties=RailProperties(can_query=True)
    )
    outbox_id = await outbox.send()
    await outbox.run()

    await outbox.run_after(hours=1)

    assert await outbox.states(outbox_id) == states
