"""The gauges of payments. What is dispatched is counted by the kernel, under the payment's lane."""

from penstock.base.meter import Gauge
from penstock.postgres.statement import statement

STUCK_PAYMENTS = statement(__package__, "stuck_payments.sql")
KEPT_RESULT_COUNT = statement(__package__, "kept_result_count.sql")

STUCK = Gauge(
    "payments_stuck",
    "Payments that were dispatched more than 10 minutes ago and are still `SCHEDULED` or "
    "`ACCEPTED`. A service looks for them among those of the last two days, a million in 17 "
    "minutes; up to 10,000.",
    sql=STUCK_PAYMENTS,
)
KEPT = Gauge(
    "payment_results_kept",
    "Results of payments that the database refused to apply, and that wait for the next try; up to "
    "100,000.",
    sql=KEPT_RESULT_COUNT,
)

METRICS = (STUCK, KEPT)
