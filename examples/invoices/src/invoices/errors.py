"""The errors of invoices.

PenstockError
└── Conflict: InvoiceConflict
"""

from dataclasses import dataclass
from typing import ClassVar

from penstock.base.errors import Conflict


@dataclass(eq=False)
class InvoiceConflict(Conflict):
    """The number belongs to an invoice with other contents."""

    code: ClassVar[str] = "invoice-conflict"  # The status, 409, is that of every Conflict.
    number: str

    def __str__(self) -> str:
        return f"invoice {self.number!r} exists with another customer or amount"
