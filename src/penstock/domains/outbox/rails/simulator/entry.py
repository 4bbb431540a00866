"""What the ledger of the simulator takes and shows, as types. It needs no SQLite."""

from msgspec import Struct


class RequestedPayment(Struct, frozen=True, kw_only=True):
    """What a client asks the simulator to pay."""

    key: str
    instruction_id: str
    outbox_id: str
    participant_id: str
    sequence_id: int
    amount: str
    currency: str


class Entry(Struct, frozen=True, kw_only=True):
    """One payment in the ledger; only one that is booked has moved money."""

    payment_no: int
    key: str
    instruction_id: str
    outbox_id: str
    participant_id: str
    sequence_id: int
    amount: str
    currency: str
    code: str
    is_booked: bool

    @property
    def reference(self) -> str:
        """Return the reference that clients get."""
        return f"sim-{self.payment_no}"


class Totals(Struct, frozen=True, kw_only=True):
    """How many payments were booked, for how many instructions, and which of them repeatedly."""

    bookings: int
    instructions: int
    repeated: dict[str, int]
