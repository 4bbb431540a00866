"""What passes through the histories of the workflows, and the names in them. Plain types only.

Histories outlive releases: a new field needs a default, and a name is never changed.
"""

from dataclasses import dataclass, field

DISPATCH_QUEUE = "dispatch-task-queue"
INIT_QUEUE = "payment-init-task-queue"
EXEC_QUEUE = "payment-exec-task-queue"

DISPATCHER = "DispatcherWorkflow"
PAYMENT_INIT = "PaymentInitWorkflow"
PAYMENT_EXEC = "PaymentExecWorkflow"

# Activities of the dispatcher: exactly four.
READ_CONFIG = "readDispatchConfig"
CLAIM_BATCH = "claimBatch"
DISPATCH_BATCH = "dispatchBatch"
RECORD_RESULTS = "recordResults"

# Activities of an execution.
EXECUTE = "executePayment"
POST_PROCESS = "postProcess"
NOTIFY = "sendNotifications"
REPORT_FAILURE = "reportFailure"

# Activities of the first phase. The last one serves every item type.
VALIDATE = "validatePayment"
ENRICH = "enrichPayment"
APPLY_RULES = "applyRules"
PERSIST = "persistScheduledPayment"
BUILD_CONTEXT = "buildContext"
DETERMINE_TIME = "determineExecTime"
SAVE_AND_ENQUEUE = "saveContextAndEnqueue"

ACCEPTED = "ACCEPTED"  # The status of a payment that was executed, before its notifications.


@dataclass(frozen=True, kw_only=True)
class DispatchConfig:
    """The row of an item type as one cycle reads it. `is_enabled`: this dispatcher may claim."""

    item_type: str
    lane: str
    is_enabled: bool
    batch_size: int
    dispatch_interval_secs: float
    jitter_window_ms: int
    exec_workflow_type: str
    exec_task_queue: str


@dataclass(frozen=True, kw_only=True)
class ClaimedBatch:
    """The items of one claim, by id: 500 contexts would exceed what Temporal takes as a payload.

    The lists are parallel. `token` is the lease under which the items are held, and
    `start_in_ms` counts from `claimed_at`.
    """

    batch_id: str = ""
    token: int = 0
    claimed_at: str = ""
    payment_ids: list[str] = field(default_factory=list[str])
    item_ids: list[int] = field(default_factory=list[int])
    attempts: list[int] = field(default_factory=list[int])
    forgiven: list[int] = field(default_factory=list[int])
    start_in_ms: list[int] = field(default_factory=list[int])
    due_ats: list[str] = field(default_factory=list[str])


@dataclass(frozen=True, kw_only=True)
class DispatchResults:
    """The result of each item of a batch: started, or why not.

    `is_recorded` is false if the lease had ended: then another cycle has the items.
    """

    started: list[str] = field(default_factory=list[str])
    failed: dict[str, str] = field(default_factory=dict[str, str])
    is_recorded: bool = True


@dataclass(frozen=True, kw_only=True)
class Schedulable:
    """An item whose context is saved and which is enqueued; without `exec_time`, it is due now."""

    item_type: str
    item_id: str
    context_json: str
    context_version: int = 1
    exec_time: str | None = None


def exec_workflow_id(item_type: str, item_id: str) -> str:
    """Return the id of the one workflow that executes an item, such as `exec-payment-p1`."""
    return f"exec-{item_type.lower()}-{item_id}"


def schedule_id(item_type: str) -> str:
    """Return the id of the schedule that dispatches an item type, such as `dispatch-payment`."""
    return f"dispatch-{item_type.lower()}"
