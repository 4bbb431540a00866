"""The circuit breaker of one key: closed, open, half-open. It exists from the first failure on.

A verdict counts only in the state that let its call in: while closed, from calls that entered since
it closed; while half-open, from its probes. All others were sent before and have seen nothing new.
"""

from penstock.limits.gate import Phase, Verdict
from penstock.limits.policy import KEPT, PROBING


class Breaker:
    """The state, changed in place. Instants and lengths are microseconds."""

    __slots__ = ("closed_at", "failures", "forget_at", "open_until", "probes")

    def __init__(self) -> None:
        self.failures = 0  # In a row, while closed.
        self.open_until = 0  # 0 while closed; when it has passed, the breaker is half-open.
        self.closed_at = 0  # When probes closed it last.
        self.forget_at = 0
        self.probes: dict[str, int] = {}  # Slots of the probes, and when they count as lost.

    def is_tripped(self, now: int) -> bool:
        """Tell whether it is open or half-open."""
        return self.open_until > 0 and self.forget_at > now

    def phase(self, now: int) -> Phase:
        """Name the state."""
        if not self.is_tripped(now):
            return "closed"
        return "open" if now < self.open_until else "half_open"

    def shut_until(self, now: int, *, open_for: int, probes_max: int) -> int:
        """Return until when nobody may enter; 0 if a probe may. Asked only while tripped."""
        # Further ahead than it can be set, the clock was set back: better probe than wait for it.
        if now < self.open_until <= now + open_for:
            return self.open_until
        # Whoever sent a probe may have died.
        self.probes = {slot: until for slot, until in self.probes.items() if until > now}
        return now + PROBING if len(self.probes) >= probes_max else 0

    def judge(
        self, verdict: Verdict, now: int, *, entered_at: int, failures_max: int, open_for: int
    ) -> None:
        """Count the verdict of a call that was no probe."""
        # A failure from before must not open what probes have just closed, and not lengthen the
        # pause of what is open; a success from before must not pardon what came after it.
        is_late = entered_at < self.closed_at <= now
        if self.open_until or is_late:
            return
        if verdict == "alive":
            self.failures = 0
        elif verdict == "failing":
            self.failures += 1
            self.forget_at = now + KEPT
            if self.failures >= failures_max:
                self._open(now, open_for)

    def judge_probe(self, slot: str, verdict: Verdict, now: int, *, open_for: int) -> None:
        """Count the verdict of a probe, unless the state it was to decide is over."""
        if self.probes.pop(slot, 0) <= now:
            return
        if verdict == "alive":
            self.open_until = 0
            self.closed_at = now
            self.forget_at = now + KEPT
            self.probes = {}
        elif verdict == "failing":
            self._open(now, open_for)

    def _open(self, now: int, open_for: int) -> None:
        self.failures = 0
        self.open_until = now + open_for
        self.forget_at = self.open_until + KEPT
        self.probes = {}
