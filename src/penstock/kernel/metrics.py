"""The kernel's metrics. Each is shown before anything was counted: an alert on a name that does
not exist yet would never fire.
"""

from penstock.base.meter import Counter, Distribution, Gauge

LANE = ("lane",)

CLAIMED = Counter("dispatch_batch_claimed_total", "Items claimed.", LANE)
CLAIMS = Counter("claim_batches_total", "Claims that took at least one item.", LANE)
CYCLE_SECONDS = Distribution(
    "dispatch_cycle_duration_seconds",
    "Duration of a claim: the wait for a connection, the claim, and history and preload of its "
    "items, also of one that found nothing; of a scheduled cycle on Temporal, until it is settled.",
    LANE,
)
WAKE_UPS = Counter("notify_wakeups_total", "Wake-ups by a notification.")
ATTEMPTS = Counter(
    "attempts_total",
    "Attempts by outcome: `done`, `retry`, `snooze`, `hold`, `dead`, and `returned` for items that "
    "were given back before they started. A domain with a record of its own counts by its own "
    "states.",
    ("lane", "state"),
)
LATENCY_MS = Distribution(
    "dispatch_latency_ms", "How long the handlers of attempts took, in milliseconds.", LANE
)
REQUEUED = Counter(
    "reaper_requeues_total",
    "Items of expired leases that this process gave back, or held in a lane that holds lost items.",
    LANE,
)
GAUGE_FAILURES = Counter(
    "metrics_gauge_failures_total",
    "Readings of a domain's gauge that failed or took too long; the gauge was left out.",
    ("metric",),
)

# Read together, by one statement for all lanes.
DEPTH = Gauge(
    "dispatch_queue_depth",
    "Items by status: `READY` (also those that are not due yet), `PARKED`, `LEASED`, `HELD`, "
    "`DEAD`.",
    ("lane", "status"),
)
DUE = Gauge(
    "dispatch_due_depth",
    "Items that are ready and due. Unlike `dispatch_queue_depth`, it does not count what waits for "
    "its time.",
    LANE,
)
PENDING = Gauge("outbox_pending_depth", "Items that wait, ready or parked.", LANE)
OLDEST_SECONDS = Gauge(
    "oldest_pending_age_seconds",
    "How long the oldest due item has been due, in seconds; 0 if none is due. Of items that are "
    "ready, or parked behind a dead or held head. In an ordered lane an item that is snoozed for "
    "up to a minute each time counts from its first due instant.",
    LANE,
)
BLOCKED = Gauge(
    "blocked_order_keys",
    "Order keys whose items wait behind a dead or held head; up to 1,000 of each are looked at.",
    LANE,
)
DEAD = Gauge("dlq_depth", "Dead letters.", LANE)
STUCK = Gauge(
    "stuck_dispatching_count",
    "Items in leases that have expired, which no sweeper has given back yet.",
    LANE,
)

# Of the process that is scraped.
CLOCK_OFFSET = Gauge(
    "clock_offset_seconds",
    "How far the clock of this process's machine is ahead of the database's; negative if it is "
    "behind. Only a process that runs a worker knows it.",
)

METRICS = (
    CLAIMED, CYCLE_SECONDS, WAKE_UPS, CLAIMS, LATENCY_MS, ATTEMPTS, REQUEUED, GAUGE_FAILURES,
    DEPTH, DUE, PENDING, OLDEST_SECONDS, BLOCKED, DEAD, STUCK, CLOCK_OFFSET,
)  # fmt: skip
