"""Log what handlers raise: each failure at debug, and one of each kind per minute at warning.

A lane whose every item fails must not fill the log, and a new kind of failure must be seen at once.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from time import monotonic

from penstock.base.log import Logger, describe, first_line, logs_debug, traceback_of
from penstock.kernel.kind import AnyKind
from penstock.kernel.lane import ErrorDetail

REPEAT_AFTER = timedelta(minutes=1)
KINDS_MAX = 1_000  # Classes and places that are remembered; code has far fewer.


@dataclass(slots=True)
class FailureLog:
    """Logs the failures of one kind's handler in this process."""

    log: Logger
    kind: AnyKind
    detail: Callable[[], ErrorDetail] = lambda: "class"  # Of the lane, whose policy may change.
    now: Callable[[], float] = monotonic
    _logged_at: dict[tuple[str, str], float] = field(default_factory=dict)

    def add(self, failure: BaseException, item_id: int) -> str:
        """Log one failure, and return the reason that its attempt records."""
        shown = describe(failure)
        self._log(failure, shown, item_id)
        reason = f"{shown['error']} in {shown['where']}"
        if self.detail() == "class" or not (message := first_line(failure)):
            return reason
        return f"{reason}: {message}"

    def _log(self, failure: BaseException, shown: dict[str, str], item_id: int) -> None:
        """Write the lines. Only that at debug has the message, which may contain secrets."""
        is_due, logs_all = self._is_due((shown["error"], shown["where"])), logs_debug(self.log)
        if not (is_due or logs_all):
            return  # A traceback takes longer than the rest of a failed attempt.
        line = shown | {
            "lane": self.kind.lane,
            "handler": self.kind.handler_name,
            "item_id": item_id,
            "exception": traceback_of(failure),
        }
        if is_due:
            self.log.warning("handler.failed", **line)
        if logs_all:
            self.log.debug("handler.failed", message=first_line(failure), **line)

    def _is_due(self, seen: tuple[str, str]) -> bool:
        now = self.now()
        logged_at = self._logged_at.get(seen)
        if logged_at is not None and now - logged_at < REPEAT_AFTER.total_seconds():
            return False
        if len(self._logged_at) >= KINDS_MAX:
            self._logged_at.clear()
        self._logged_at[seen] = now
        return True
