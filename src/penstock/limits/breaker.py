"""The circuit breaker of one key: closed, open, half-open. It is created by the first failure.

A verdict counts only in the state that admitted its call: while closed, from calls that entered
since it closed; while half-open, from its probes. All other calls were sent before the change and
do not count in the present state.
"""

from penstock.limits.gate import BreakerPhase, Verdict
from penstock.limits.policy import BREAKER_KEPT, PROBE_WAIT


class Breaker:
    """The state, changed in place. Instants and lengths are microseconds."""

    __slots__ = ("closed_at", "failures", "forget_at", "open_until", "probes")

    def __init__(self) -> None:
        self.failures = 0  # In a row, while closed.
        self.open_until = 0  # 0 while closed; when it has passed, the breaker is half-open.
        self.closed_at = 0  # When probes closed it last.
        self.forget_at = 0
        self.probes: dict[str, int] = {}  # Permit ids of the probes, and when they expire.

    def is_tripped(self, now: int) -> bool:
        """Return whether it is open or half-open."""
        return self.open_until > 0 and self.forget_at > now

    def phase(self, now: int) -> BreakerPhase:
        """Name the state."""
        if not self.is_tripped(now):
            return "closed"
        return "open" if now < self.open_until else "half_open"

    def blocked_until(self, now: int, *, open_for: int, probes_max: int) -> int:
        """Return until when no call may enter; 0 if a probe may. Call it only while tripped."""
        # Further ahead than `open_for` means that the clock was set back: probe instead of waiting.
        if now < self.open_until <= now + open_for:
            return self.open_until
        # The worker that sent a probe may have died.
        self.probes = {id_: until for id_, until in self.probes.items() if until > now}
        return now + PROBE_WAIT if len(self.probes) >= probes_max else 0

    def record(
        self, verdict: Verdict, now: int, *, entered_at: int, failures_max: int, open_for: int
    ) -> None:
        """Count the verdict of a call that was not a probe."""
        # A failure of an earlier call must not open a breaker that probes have just closed, nor
        # extend the time of an open one; an earlier success must not clear later failures.
        is_late = entered_at < self.closed_at <= now
        if self.open_until or is_late:
            return
        if verdict == "alive":
            self.failures = 0
        elif verdict == "failing":
            self.failures += 1
            self.forget_at = now + BREAKER_KEPT
            if self.failures >= failures_max:
                self._open(now, open_for)

    def record_probe(self, permit_id: str, verdict: Verdict, now: int, *, open_for: int) -> None:
        """Count the verdict of a probe, unless the half-open state that sent it has ended."""
        if self.probes.pop(permit_id, 0) <= now:
            return
        if verdict == "alive":
            self.open_until = 0
            self.closed_at = now
            self.forget_at = now + BREAKER_KEPT
            self.probes = {}
        elif verdict == "failing":
            self._open(now, open_for)

    def _open(self, now: int, open_for: int) -> None:
        self.failures = 0
        self.open_until = now + open_for
        self.forget_at = self.open_until + BREAKER_KEPT
        self.probes = {}
