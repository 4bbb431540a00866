"""The range of instants that calendars cover."""

from datetime import UTC, datetime

from penstock.base.errors import InvalidInput

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
END_AT = datetime(2200, 1, 1, tzinfo=UTC)  # Calendars are not evaluated beyond this instant.


def check_instant(at: datetime, path: str) -> None:
    """Raise InvalidInput for an instant without a time zone, or before 1970 or after 2199.

    The driver maps the first and last datetime of Python to infinity, and fails near them.
    """
    if at.tzinfo is None:
        raise InvalidInput(path, "has no time zone")
    if not EPOCH <= at <= END_AT:
        raise InvalidInput(path, "must be from 1970 to 2199")
