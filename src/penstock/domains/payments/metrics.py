"""The metrics of payments."""

from penstock.base.meter import Counter, Gauge
from penstock.postgres.statement import statement

STUCK_PAYMENTS = statement(__package__, "stuck_payments.sql")
KEPT_RESULT_COUNT = statement(__package__, "kept_result_count.sql")

STUCK = Gauge(
    "payments_stuck",
    "Payments that were dispatched and due more than 10 minutes ago and are still `SCHEDULED` or "
    "`ACCEPTED`, or are 10 minutes overdue and were never enqueued. A service looks for them among "
    "those of the last two days, a million in 17 minutes; up to 10,000.",
    sql=STUCK_PAYMENTS,
)
KEPT = Gauge(
    "payment_results_kept",
    "Results of payments that the database refused to apply, and that wait for the next try; up to "
    "100,000.",
    sql=KEPT_RESULT_COUNT,
)

STARTED = Counter(
    "dispatch_workflow_started_total",
    "Executions started: payments that the built-in engine has executed, and workflows.",
    ("lane",),
)
START_FAILURES = Counter(
    "dispatch_workflow_start_failures_total",
    "Starts of executions that failed. A payment that is tried again may be counted again.",
    ("lane",),
)

METRICS = (STARTED, START_FAILURES, STUCK, KEPT)
