"""What cannot be right is found before the call, also if it came in past the API."""

from datetime import timedelta
from decimal import Decimal
from typing import Any, cast

import msgspec
import pytest

from penstock.domains.outbox.rails.rail import LoadedRail, Rail
from penstock.domains.outbox.validate import validate
from tests.domains.outbox.rails.rail_scene import instruction

SEPA = LoadedRail(
    rail_type="bank",
    rail=cast("Rail", None),
    codes={},
    timeout=timedelta(seconds=30),
    concurrency_max=1,
    destination_scheme="sepa",
)
SOUND = instruction(destination={"iban": "DE89370400440532013000"})


def test_a_sound_instruction_passes() -> None:
    assert validate(SOUND, SEPA) is None


@pytest.mark.covers("E35")
@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"amount": 12.5}, "payload.amount"),
        ({"currency": "eur"}, "payload.currency"),
        ({"destination": {"iban": "DE00"}}, "payload.destination.iban"),
        ({"amount": "12.51"}, "payload.amount"),
    ],
)
def test_a_wrong_payload_is_named(changes: dict[str, Any], field: str) -> None:
    given = msgspec.structs.replace(SOUND, payload=SOUND.payload | changes)

    reason = validate(given, SEPA)

    assert reason is not None
    assert reason.startswith(f"{field}: ")


def test_an_amount_that_was_not_accepted_is_refused() -> None:
    """Limits and approvals looked at the column; a rail would pay what the payload says."""
    given = msgspec.structs.replace(SOUND, amount=Decimal("1.00"))

    assert validate(given, SEPA) == "payload.amount: is not the amount that was accepted"
