"""The page about payments lists every event that a payment can send."""

from typing import get_args

from penstock.domains.payments.results import ResultStatus
from tests.docs.pages import cells_of, read


def test_every_event_about_a_payment_has_a_row() -> None:
    """A receiver that does not expect an event drops it, such as that a payment is in doubt."""
    listed = cells_of(read("docs/howto/schedule-payments.md"))

    sent = {f"payment.{each.lower()}" for each in get_args(ResultStatus)}
    assert {name for name in listed if name.startswith("payment.")} == sent
