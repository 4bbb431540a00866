"""Sets of holidays by name: TARGET2, US-FED, or a country or subdivision of ISO 3166."""

from datetime import date, timedelta
from functools import lru_cache

from penstock.calendar.calendar import WEEKDAYS

YEARS_CACHED = 1_000  # All sets of one calendar for fifty years.


def is_holiday_set(name: str) -> bool:
    """Say whether holidays are known under this name."""
    import holidays  # noqa: PLC0415 - As below.

    if name in {"TARGET2", "US-FED"}:
        return True
    country, dash, subdivision = name.partition("-")
    known = holidays.list_supported_countries(include_aliases=False).get(country)
    return known is not None and (subdivision in known if dash else True)


@lru_cache(maxsize=YEARS_CACHED)
def holidays_of(name: str, year: int) -> frozenset[date]:
    """Return the holidays of one year."""
    import holidays  # noqa: PLC0415 - The import takes 0.1 s and 15 MB with the first set.

    match name.partition("-"):
        case "TARGET2", _, _:
            return frozenset(holidays.financial_holidays("XECB", years=year))
        case "US", _, "FED":
            # The package moves a Saturday's holiday to Friday, as government offices do. The
            # Federal Reserve moves only a Sunday's, to Monday, and is open on that Friday.
            days = frozenset(holidays.country_holidays("US", years=year, observed=False))
            sundays = {day for day in days if WEEKDAYS[day.weekday()] == "sun"}
            return days | {day + timedelta(days=1) for day in sundays}
        case country, _, subdivision:
            return frozenset(
                holidays.country_holidays(country, subdiv=subdivision or None, years=year)
            )
