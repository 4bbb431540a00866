"""Every example runs unchanged and ends by itself."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.command import clean_environment

EXAMPLES = Path(__file__).parents[2] / "examples"

OUTPUT = {
    "quickstart.py": ["hello, Ada", "hello, Grace", "hello, Edsger"],
    "batch_handler.py": ["paid 12.50 to account-0", "paid 12.50 to account-4"],
    "transactional_enqueue.py": [
        "order 1 was rolled back, and its mail with it",
        "mail about order 2",
    ],
    "mail.py": [
        "order 1 was rolled back, and its mail with it",
        "to ada@example.org: captured",
        "bcc archive@example.com: captured",
    ],
    "django_mail.py": [
        "order 1 was rolled back, and its mail with it",
        "Order 2 from shop@example.com",
        "to ada@example.org: captured",
        "bcc archive@example.com: captured",
    ],
    "outbox.py": [
        "rent-march was rolled back, and took no number",
        "rent-april is number 1 of acme, and paid: True",
        "salary-1 is number 2 of acme, and paid: True",
        "salary-2 is number 3 of acme, and paid: True",
        "rent-april again is the same instruction: True",
    ],
    "payments.py": [
        "rent-2031-09 was rolled back",
        "rent-2031-10 again is new: False",
        "rent-2031-10 with another amount is a conflict",
        "rent-2031-11 at 02.11. 09:00 is SCHEDULED",
        "rent-2031-12 at 01.09. 16:00 is CANCELLED",
        "rent-2031-10 at 01.09. 16:00 is SCHEDULED",
    ],
    "slots.py": [
        "forecast: from 16:00:00 to 16:00:39.960000",
        "booked: from 16:00:00 to 16:00:39.960000",
        "the fullest window has 100",
        "asked again, the answer is the same: True",
        "late-comer has the slot of statement-7: 16:00:00.280000",
    ],
    "lane_with_slots.py": [
        "payout-1 is due 0.0 s later",
        "payout-2 is due 0.5 s later",
        "payout-5 is due 2.0 s later",
        "payout-6 is due 0.5 s later, instead of payout-2",
        *(f"paid payout-{number}" for number in (1, 6, 3, 4, 5)),
    ],
    "webhooks.py": [
        "sent 3 events",
        "receiver: order 2 is genuine, but something goes wrong",
        *(f"receiver: order {number} is genuine" for number in (1, 2, 3)),
        "order 2 is delivered after 2 attempts:",
        "  attempt 1 was answered 500",
        "  attempt 2 was answered 200",
    ],
}


# No program: tests/domains/outbox/rails/test_own_rail.py imports it.
IMPORTED = {"own_rail.py"}


def test_every_example_is_tested() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == OUTPUT.keys() | IMPORTED


@pytest.mark.parametrize(("name", "expected"), OUTPUT.items(), ids=OUTPUT)
def test_an_example_prints_the_expected_lines(dsn: str, *, name: str, expected: list[str]) -> None:
    """Users copy examples, so they must work."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name)],
        check=True,
        env=clean_environment({"PENSTOCK_DATABASE_URL": dsn}),
        capture_output=True,
        text=True,
        timeout=60,
    )

    for line in expected:
        assert line in done.stdout.splitlines()
    assert "mail about order 1" not in done.stdout
