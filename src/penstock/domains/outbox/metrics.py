"""The metrics of the outbox. Most are the kernel's, under the lane `penstock.outbox`; its
`attempts_total` counts by the states of the archive.
"""

from penstock.base.meter import Gauge, Meter
from penstock.domains.outbox.lanes import LANE
from penstock.kernel.metrics import ATTEMPTS
from penstock.postgres.statement import statement

UNKNOWN_INSTRUCTIONS = statement(__package__, "unknown_instructions.sql")
UNSETTLED_INSTRUCTIONS = statement(__package__, "unsettled_instructions.sql")
UNSEALED_SECONDS = statement(__package__, "unsealed_seconds.sql")
OUTBOX_GAPS = statement(__package__, "outbox_gaps.sql")

UNKNOWN = Gauge(
    "outbox_unknown_instructions",
    "Held instructions that may have been paid.",
    sql=UNKNOWN_INSTRUCTIONS,
)
UNSETTLED = Gauge(
    "outbox_unsettled_instructions",
    "Dispatched instructions that their rail has accepted, and neither settled nor returned within "
    "60 days.",
    sql=UNSETTLED_INSTRUCTIONS,
)
GAPS = Gauge(
    "outbox_sequence_gaps",
    "Numbers of participants that an operator has passed over, or that were taken without an "
    "instruction.",
    sql=OUTBOX_GAPS,
)
UNSEALED = Gauge(
    "outbox_unsealed_seconds",
    "How long the first row of the archive that has no seal has been there, in seconds.",
    sql=UNSEALED_SECONDS,
)

METRICS = (UNKNOWN, UNSETTLED, GAPS, UNSEALED)


def count_rows(meter: Meter, state: str, count: int) -> None:
    """Count archive rows of one state that no attempt of a worker wrote.

    Those of attempts the worker counts itself, by the states that `Kind.record` returns.
    """
    meter.count(ATTEMPTS, count, lane=LANE, state=state)
