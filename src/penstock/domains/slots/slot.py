"""A slot: the reserved instant of a caller's event in a pool, and its text form."""

from datetime import UTC, datetime, timedelta

from msgspec import Struct, to_builtins

MILLISECOND = timedelta(milliseconds=1)


# gc=False, here and in Assigned: batches have a million of them, and they form no cycles.
class Slot(Struct, frozen=True, kw_only=True, gc=False):
    """When an event is scheduled. `position` is the offset in its window, in microseconds."""

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
        """Return the whole milliseconds between the requested and the scheduled time."""
        return (self.scheduled_at - self.requested_at) // MILLISECOND

    def shown(self) -> dict[str, object]:
        """Return the slot as errors show it."""
        return {
            "eventId": self.event_id,
            "configName": self.pool,
            "requestedTime": instant_text(self.requested_at),
            "scheduledTime": instant_text(self.scheduled_at),
            "delayMs": self.delay_ms,
        }


def instant_text(at: datetime) -> str:
    """Return an instant as ISO 8601 in UTC, with no, three or six decimals, as needed."""
    if at.tzinfo is not UTC:
        at = at.astimezone(UTC)
    text: str = to_builtins(at)  # With no or six decimals, five times as fast as isoformat.
    is_short = at.microsecond and at.microsecond % 1000 == 0
    return f"{text[:-4]}Z" if is_short else text
