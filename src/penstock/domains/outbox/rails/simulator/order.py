"""What the simulator is ordered to do with a payment, by the payment itself or by a test."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

BOOKED = frozenset({"PAID", "ACCEPTED"})  # The codes whose payments are booked.
FINAL = frozenset({"REJECTED"})  # Not booked, and the same answer to every repeat.

Moment = Literal["before_booking", "after_booking"]
Later = Literal["SETTLED", "RETURNED"]
Seconds = Annotated[float, Meta(ge=0, le=3_600)]


class Order(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How one payment, or `times` requests, are treated. Without any field they are paid.

    `instruction_id` selects the payments of an order that a test gives; None is any. `lose` closes
    the connection without an answer, `crash` ends the process. `delay_seconds` is before the
    booking, `reply_delay_seconds` after it. Queries do not find the payment for `hidden_seconds`.
    `is_repeatable` books it again if it comes again, as a rail without idempotency does. A payment
    with the code ACCEPTED becomes `later` after `later_seconds`.
    """

    instruction_id: str | None = None
    times: Annotated[int, Meta(ge=1, le=1_000_000)] = 1
    code: Annotated[str, Meta(min_length=1, max_length=64)] = "PAID"
    status: Annotated[int, Meta(ge=200, le=599)] | None = None
    books: bool | None = None
    delay_seconds: Seconds = 0
    reply_delay_seconds: Seconds = 0
    hidden_seconds: Seconds = 0
    lose: Moment | None = None
    crash: Moment | None = None
    is_repeatable: bool = False
    later: Later | None = None
    later_seconds: Seconds = 0

    @property
    def is_booked(self) -> bool:
        """Return whether the ledger gets a booking."""
        return self.code in BOOKED if self.books is None else self.books

    @property
    def is_recorded(self) -> bool:
        """Return whether a repeat and a query find the payment."""
        return self.is_booked or self.code in FINAL

    @property
    def http_status(self) -> int:
        """Return the status of the answer."""
        if self.status is not None:
            return self.status
        return 201 if self.is_booked else 503 if self.code == "BUSY" else 422


class OrderBook:
    """Orders that wait for their payments; each is used `times` times, the oldest first."""

    def __init__(self) -> None:
        self._given: list[tuple[Order, int]] = []
        self._used: dict[str, int] = {}

    def add(self, order: Order) -> None:
        """Keep an order until it is used up."""
        self._given.append((order, order.times))

    def clear(self) -> None:
        """Forget all orders."""
        self._given.clear()

    def take(self, instruction_id: str, own: Order | None) -> Order:
        """Return the order for a request: one that was given, then the payment's own, then none."""
        for place, (order, left) in enumerate(self._given):
            if order.instruction_id in (None, instruction_id):
                if left == 1:
                    del self._given[place]
                else:
                    self._given[place] = (order, left - 1)
                return order
        if own is not None and self._used.get(instruction_id, 0) < own.times:
            self._used[instruction_id] = self._used.get(instruction_id, 0) + 1
            return own
        return Order()
