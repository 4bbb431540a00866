"""Run one measurement of a domain: its figures, or the reason why there are none."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

import asyncpg

from bench.booking import BookingFailed
from bench.dispatch import DispatchFailed
from bench.environment import Unavailable
from bench.figures import Measurement
from bench.measure import Bench
from bench.pgbench import PgbenchFailed
from bench.process import NoAnswer, NotReady
from penstock.base.errors import PenstockError

# What is measured, and details of it.
Figures: TypeAlias = tuple[float, dict[str, float]]


async def tried(
    bench: Bench,
    run: Callable[[], Awaitable[Figures]],
    *,
    what: str,
    unit: str,
    subject: str = "penstock",
) -> Measurement:
    """Run one measurement and keep it, or the reason why there is none."""
    value, more, reason = None, dict[str, float](), ""
    try:
        value, more = await run()
    except Unavailable as exc:
        reason = str(exc)
    except (
        BookingFailed, DispatchFailed, NoAnswer, NotReady, PgbenchFailed, PenstockError,
        asyncpg.PostgresError, OSError,
    ) as exc:  # fmt: skip
        reason = f"failed: {exc}"
    return bench.report.measured(
        Measurement(subject=subject, what=what, value=value, unit=unit, reason=reason, detail=more)
    )
