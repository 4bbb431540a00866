"""The settings of invoices, and their check in `penstock doctor`."""

from datetime import timedelta
from typing import Annotated

from pydantic import AfterValidator, Field
from pydantic_settings import BaseSettings

from penstock.base.settings import SECTION
from penstock.contract import Finding, Resources

PLACEHOLDER = "billing@localhost"


def _address(value: str) -> str:
    name, _, host = value.partition("@")
    if not name or not host:
        raise ValueError("is not an address such as billing@example.com")
    return value


class InvoiceSettings(BaseSettings):
    """PENSTOCK_INVOICES_SENDER and PENSTOCK_INVOICES_KEEP."""

    model_config = SECTION

    # The sender's address of invoices.
    invoices_sender: Annotated[str, AfterValidator(_address)] = PLACEHOLDER
    # How long sent invoices are kept, in ISO 8601, such as P3650D.
    invoices_keep: timedelta = Field(default=timedelta(days=3650), gt=timedelta(0))


async def check_sender(resources: Resources) -> Finding:
    """Warn if no sender is set."""
    sender = resources.section(InvoiceSettings).invoices_sender
    if sender == PLACEHOLDER:
        return Finding("warn", "invoices sender", "PENSTOCK_INVOICES_SENDER is not set")
    return Finding("ok", "invoices sender", sender)
