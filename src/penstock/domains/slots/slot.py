"""A slot: an event's place in a pool's windows, and how it is written for others."""

from datetime import UTC, datetime, timedelta

from msgspec import Struct, to_builtins

BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)  # Windows are counted from here.
MILLISECOND = timedelta(milliseconds=1)


# gc=False, here and with what holds it: there are a million of them, and never a circle.
class Slot(Struct, frozen=True, kw_only=True, gc=False):
    """When an event is scheduled. `position` is the place in its window, in microseconds."""

    event_id: str
    pool: str
    requested_at: datetime
    scheduled_at: datetime
    window_at: datetime
    position: int
    config_id: int
    created_at: datetime

    @property
    def delay_ms(self) -> int:
        """Return the whole milliseconds between what was asked for and what was given."""
        return (self.scheduled_at - self.requested_at) // MILLISECOND

    def shown(self) -> dict[str, object]:
        """Return what a caller is told of it."""
        return {
            "eventId": self.event_id,
            "configName": self.pool,
            "requestedTime": instant_text(self.requested_at),
            "scheduledTime": instant_text(self.scheduled_at),
            "delayMs": self.delay_ms,
        }


def instant_text(at: datetime) -> str:
    """Return an instant as ISO 8601 in UTC, with as many digits as it needs: none, three or six."""
    if at.tzinfo is not UTC:
        at = at.astimezone(UTC)
    text: str = to_builtins(at)  # Without digits, or with six; in a fifth of isoformat's time.
    is_short = at.microsecond and at.microsecond % 1000 == 0
    return f"{text[:-4]}Z" if is_short else text
