"""The leases that one process holds for one lane: which items have ended, what is lost.

Only this module changes a held lease: the executor adds leases and ends their items, the runner
takes what has ended and settles it, the worker renews. Touches no database.
"""

from dataclasses import dataclass, field
from datetime import timedelta

from penstock.kernel.claim import Lease
from penstock.kernel.settle import Ended

# Settling part of a lease rewrites its row, so the first results of slow handlers wait this long
# for others of the same lease.
SETTLE_DELAY = timedelta(milliseconds=20)


@dataclass(slots=True)
class HeldLease:
    """A lease with items that are not settled yet. Instants are of the monotonic clock.

    Its age is measured on the boot clock: a lease also ages while the machine is suspended.
    """

    lease: Lease
    _renewed_at: float  # On the boot clock.
    _unsettled: int
    _ended: list[Ended] = field(default_factory=list)
    _ended_first_at: float = 0.0
    _abandoned: int = 0
    _is_lost: bool = False

    def end(self, ended: Ended, now: float) -> bool:
        """Note how one item ended; return whether that makes the lease due for settling sooner.

        That is so for the first result, which starts the settle delay, and for the last one.
        """
        self._ended.append(ended)
        count = len(self._ended)
        if count == 1:
            self._ended_first_at = now
            return True
        return count == self._unsettled

    def settle_at(self) -> float | None:
        """Return when the ended items are due for settling; None if none has ended.

        They are due at once if the lease has no other unsettled items.
        """
        if not self._ended:
            return None
        if len(self._ended) == self._unsettled:
            return self._ended_first_at
        return self._ended_first_at + SETTLE_DELAY.total_seconds()

    def take_ended(self) -> tuple[list[Ended], bool]:
        """Take the ended items to settle them, and whether the lease has no other unsettled ones.

        The caller puts them back, or marks them as settled.
        """
        ended, self._ended = self._ended, []
        return ended, len(ended) == self._unsettled

    def put_back(self, ended: list[Ended]) -> None:
        """Return ended items that could not be settled; they are taken again."""
        self._ended = ended + self._ended

    def mark_settled(self, count: int) -> bool:
        """Note that so many taken items are settled; return whether nothing is left."""
        self._unsettled -= count
        return self._unsettled == self._abandoned

    def abandon(self, count: int) -> bool:
        """Note that so many items are left to the lease's expiry; return whether nothing else is.

        They stay unsettled, so that settling the others does not close the lease.
        """
        self._abandoned += count
        return self._unsettled == self._abandoned

    def renew(self, now: float) -> None:
        """Note that the lease was renewed by a statement sent at `now`, on the boot clock."""
        self._renewed_at = now

    def lose(self) -> None:
        """Note that the lease has ended in the database: none of its items is started any more.

        Handlers that run go on, and their results are recorded as late.
        """
        self._is_lost = True

    def needs_renewal(self, after: timedelta, *, now: float) -> bool:
        """Return whether the claim, or the last renewal, was longer ago than `after`.

        `now` is on the boot clock.
        """
        return not self._is_lost and now - self._renewed_at > after.total_seconds()

    def may_be_lost(self, duration: timedelta, now: float) -> bool:
        """Return whether another worker may hold the items: lost, or not renewed in time.

        `now` is on the boot clock.
        """
        return self._is_lost or now - self._renewed_at > duration.total_seconds()


@dataclass(frozen=True, slots=True)
class EndedBatch:
    """Ended items of one lease, taken to be settled."""

    held: HeldLease
    ended: list[Ended]
    closes: bool  # Whether the lease has no other unsettled items.


@dataclass(slots=True)
class HeldLeases:
    """All leases of one lane in this process, from the claim's commit until all is settled."""

    _by_token: dict[int, HeldLease] = field(default_factory=dict)

    def is_empty(self) -> bool:
        """Return whether nothing is left to settle."""
        return not self._by_token

    def add(self, lease: Lease) -> HeldLease:
        """Hold a lease whose claim has committed."""
        # The boot clock also counts the time that the machine was suspended before.
        renewed_at = lease.began_at + lease.suspended
        held = HeldLease(lease, _renewed_at=renewed_at, _unsettled=len(lease.items))
        self._by_token[lease.token] = held
        return held

    def take_ended(self, now: float) -> EndedBatch | float | None:
        """Take the ended items of the lease that is due for settling first.

        If none is due yet, return the instant when one will be; None if nothing has ended.
        """
        first, first_at = None, None
        for held in self._by_token.values():
            settle_at = held.settle_at()
            if settle_at is not None and (first_at is None or settle_at < first_at):
                first, first_at = held, settle_at
        if first is None or first_at is None or first_at > now:
            return first_at
        return EndedBatch(first, *first.take_ended())

    def put_back(self, batch: EndedBatch) -> None:
        """Return a batch that could not be settled; it is taken again."""
        batch.held.put_back(batch.ended)

    def mark_settled(self, batch: EndedBatch) -> None:
        """Note that a batch is settled; a lease with nothing left is no longer held."""
        if batch.held.mark_settled(len(batch.ended)):
            del self._by_token[batch.held.lease.token]

    def abandon(self, held: HeldLease, count: int) -> None:
        """Leave items that cannot end here to the expiry of their lease."""
        if held.abandon(count):
            del self._by_token[held.lease.token]

    def to_renew(self, after: timedelta, *, now: float) -> dict[int, HeldLease]:
        """Return the leases that were claimed or renewed longer ago than `after`, by token.

        `now` is on the boot clock.
        """
        return {
            token: held
            for token, held in self._by_token.items()
            if held.needs_renewal(after, now=now)
        }
