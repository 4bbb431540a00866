"""How often each id has come: the payments of the ledger, events, mails and runs on Temporal."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Tally:
    """Counts by id."""

    counts: dict[str, int] = field(default_factory=dict[str, int])

    def note(self, each: str) -> None:
        """Add one arrival of an id."""
        self.counts[each] = self.counts.get(each, 0) + 1

    @property
    def distinct(self) -> int:
        """Return how many ids have come."""
        return len(self.counts)

    @property
    def once(self) -> int:
        """Return how many ids have come exactly once."""
        return sum(count == 1 for count in self.counts.values())

    @property
    def most(self) -> int:
        """Return how often the most frequent id has come."""
        return max(self.counts.values(), default=0)

    @property
    def again(self) -> int:
        """Return how many arrivals were not the first of their id."""
        return sum(self.counts.values()) - len(self.counts)
