"""What can be read off the instants at which things happened. Pure."""

import statistics
from bisect import bisect_left
from collections.abc import Iterable


def busiest_second(instants: list[float]) -> int:
    """Return the most instants in any window of one second, wherever it begins; sorted input."""
    return max((bisect_left(instants, at + 1.0) - i for i, at in enumerate(instants)), default=0)


def mean_rate(instants: list[float]) -> float:
    """Return instants per second from the first to the last; sorted input."""
    if len(instants) < 2:
        return 0.0
    return (len(instants) - 1) / (instants[-1] - instants[0])


def inversions(numbers: Iterable[int], *, keys: int) -> int:
    """Count events whose first arrival came after that of a later one of the same key.

    `numbers` are in the order of arrival; the key of a number is its rest by `keys`.
    """
    latest: dict[int, int] = {}
    seen: set[int] = set()
    found = 0
    for number in numbers:
        if number in seen:
            continue
        seen.add(number)
        key = number % keys
        found += number < latest.get(key, -1)
        latest[key] = max(number, latest.get(key, -1))
    return found


def percentile_99(values: list[float]) -> float:
    """Return the value that one in a hundred is above."""
    return statistics.quantiles(values, n=100, method="inclusive")[-1]
