"""The types on the wire: they decode requests, encode responses and become the OpenAPI.

Input refuses unknown fields. A field that is UNSET was not given, which is not the same as null.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from msgspec import Meta

from penstock.api.lane_structs import lane_structs
from penstock.contract.paging import ID_MAX, Limit
from penstock.kernel import lane as kernel
from penstock.kernel import why
from penstock.kernel.api_keys import NAME_LENGTH_MAX, Scope
from penstock.kernel.enqueue import KEY_LENGTH_MAX, LIMIT_KEYS_MAX
from penstock.kernel.inspect import ItemState
from penstock.kernel.limit_key import NAME
from penstock.kernel.settle import REASON_LENGTH_MAX

BATCH_MAX = 1_000  # More goes faster through Python or SQL, in one transaction of the caller.

Id = Annotated[int, Meta(ge=1, le=ID_MAX)]
Instant = Annotated[datetime, Meta(tz=True)]
ItemKey = Annotated[str, Meta(min_length=1, max_length=KEY_LENGTH_MAX)]
LimitKeys = Annotated[
    dict[Annotated[str, Meta(pattern=NAME)], ItemKey], Meta(max_length=LIMIT_KEYS_MAX)
]
Reason = Annotated[str, Meta(min_length=1, max_length=REASON_LENGTH_MAX)]
Whole = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Cursor = Annotated[str, Meta(description="The `next` of the page before.", pattern="^[0-9]{1,19}$")]

# ------------------------------------------------------------------------------- parameters


class LaneName(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which lane."""

    name: str


class ItemRef(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which item."""

    item_id: Id


class ItemByKey(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which item, by the caller's own id for it."""

    lane: str
    key: ItemKey


class ItemQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which page of a lane's items; `since` and `until` are when an item was accepted."""

    lane: str
    state: ItemState | None = None
    order_key: ItemKey | None = None
    since: Instant | None = None
    until: Instant | None = None
    after: Cursor | None = None
    limit: Limit = 100


class DeadQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which page of dead letters."""

    lane: str | None = None
    after: Cursor | None = None
    limit: Limit = 100


class AuditQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which page of the audit; `subject` is a lane, an item id or an API key's id."""

    subject: str | None = None
    after: Cursor | None = None
    limit: Limit = 100


class WorkerQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which workers: all, or those that run a lane."""

    lane: str | None = None


class DeadReplayRef(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which replay."""

    replay_id: Id


class KeyRef(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which API key."""

    key_id: str


# ------------------------------------------------------------------------------------ lanes


if TYPE_CHECKING:

    class Lane(msgspec.Struct, frozen=True, kw_only=True):
        """A lane; its fields come from the kernel's definition and are not read by name here."""

    class LaneChange(msgspec.Struct, frozen=True, kw_only=True):
        """A change of a lane's policy; its fields come from the kernel's definition."""
else:
    Lane, LaneChange = lane_structs(kernel.FIELDS, module=__name__)


class Lanes(msgspec.Struct, frozen=True, kw_only=True):
    """All lanes, by name."""

    lanes: list[Lane]


# ------------------------------------------------------------------------------------ items


class NewItem(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An item to accept. Without `due_at` it is due now; without `key` a repeat is a new item.

    The payload is stored as it was sent: no number in it is rounded.
    """

    lane: str
    payload: msgspec.Raw
    key: ItemKey | None = None
    due_at: Instant | None = None
    order_key: ItemKey | None = None
    not_after: Instant | None = None
    limit_keys: LimitKeys | None = None


NewItems = Annotated[list[NewItem], Meta(min_length=1, max_length=BATCH_MAX)]


class Accepted(msgspec.Struct, frozen=True, kw_only=True):
    """The item that the database has; `is_new` is false when its key was known already."""

    id: int
    is_new: bool


class AcceptedMany(msgspec.Struct, frozen=True, kw_only=True):
    """One result per item, in the order of the items."""

    items: list[Accepted]


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """Where an item is. While it waits, `due_at` is the instant of its next attempt."""

    id: int
    lane: str
    key: str | None
    order_key: str | None
    state: str
    reason: str | None
    due_at: datetime
    not_after: datetime | None
    limit_keys: dict[str, str] | None
    created_at: datetime
    attempts: int


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt as it was recorded, or a late result that changed nothing.

    `resolved_by` names the operator who resolved the item; no worker made that attempt.
    """

    attempt: int
    outcome: str
    claimed_at: datetime | None
    settled_at: datetime
    retry_at: datetime | None
    duration_ms: int | None
    reason: str | None
    result: msgspec.Raw | None
    token: int
    resolved_by: str | None


class ItemDetail(msgspec.Struct, frozen=True, kw_only=True):
    """An item, its payload, and every attempt in order."""

    id: int
    lane: str
    key: str | None
    order_key: str | None
    state: str
    reason: str | None
    due_at: datetime
    not_after: datetime | None
    limit_keys: dict[str, str] | None
    created_at: datetime
    attempts: int
    payload: msgspec.Raw
    history: list[Attempt]


class ItemPage(msgspec.Struct, frozen=True, kw_only=True):
    """Items, the newest first; `next` is null on the last page.

    With a filter by state or time, a page may have fewer items than its limit, or none.
    """

    items: list[Item]
    next: str | None


class OptionalReason(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why, if the operator says so; it is kept in the audit."""

    reason: Reason | None = None


class Reschedule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The new due instant, and why if the operator says so."""

    due_at: Instant
    reason: Reason | None = None


class Decision(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why an operator decides so; it is kept in the audit."""

    reason: Reason


class Resolution(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a held item ended, and how that was found out. `result` is for one that is done."""

    outcome: Literal["done", "dead"]
    reason: Reason
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class DecisionOnMany(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which items of a lane: all, or those with a reason, an order key, from before an instant.

    With `dry_run` they are only counted. A call decides about 500 items at most; `after` takes the
    `next` of the call before.
    """

    lane: str
    reason: Reason
    with_reason: str | None = None
    with_order_key: ItemKey | None = None
    before: Instant | None = None
    dry_run: bool = False
    after: Cursor | None = None


class SkipMany(DecisionOnMany, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which heads of order keys, by their state."""

    state: Literal["dead", "held", "waiting"]


class ResolutionOfMany(DecisionOnMany, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which held items, and how they ended."""

    outcome: Literal["done", "dead"]
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class Decided(msgspec.Struct, frozen=True, kw_only=True):
    """How many items matched and were changed.

    `unchanged` ones were refused: they had another state by then, or their deadline has passed.
    `next` is null when no more items match.
    """

    matched: int
    changed: int
    unchanged: int
    next: str | None


# ------------------------------------------------------------------------------------- dead


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A dead item and why it died."""

    id: int
    lane: str
    key: str | None
    order_key: str | None
    died_at: datetime
    attempts: int
    reason: str


class DeadPage(msgspec.Struct, frozen=True, kw_only=True):
    """Dead letters, the oldest first; `next` is null on the last page."""

    items: list[DeadLetter]
    next: str | None


class ReplayRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which dead items to replay; with `dry_run` they are only counted."""

    lane: str
    reason: str | None = None
    dry_run: bool = False


class DeadReplay(msgspec.Struct, frozen=True, kw_only=True):
    """A replay job: durable, and continued by any sweeper."""

    replay_id: int
    lane: str
    reason: str | None
    counted: int
    replayed: int
    created_at: datetime
    created_by: str
    finished_at: datetime | None


class ReplayAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """How many dead items matched, and the job unless it was a dry run."""

    counted: int
    replay: DeadReplay | None


class Replays(msgspec.Struct, frozen=True, kw_only=True):
    """The latest replays, the newest first."""

    replays: list[DeadReplay]


# ------------------------------------------------------------------------- why, and workers


class WhyReason(msgspec.Struct, frozen=True, kw_only=True):
    """Why an item has not run: a code, a sentence, and the values in it; instants are ISO 8601."""

    code: why.ReasonCode
    sentence: str
    data: dict[str, str | int | float | bool | list[str] | None]


class WhyReasons(msgspec.Struct, frozen=True, kw_only=True):
    """The reasons, the strongest first."""

    reasons: list[WhyReason]


def to_reasons(found: Sequence[why.Reason]) -> WhyReasons:
    """Return the kernel's reasons on the wire."""
    return msgspec.convert({"reasons": msgspec.to_builtins(found)}, WhyReasons)


class Worker(msgspec.Struct, frozen=True, kw_only=True):
    """A worker as it last reported itself; `is_alive` if that was in the last 20 seconds."""

    name: str
    host: str
    pid: int
    version: str
    lanes: list[str]
    started_at: datetime
    seen_at: datetime
    is_alive: bool


class Workers(msgspec.Struct, frozen=True, kw_only=True):
    """Workers, the oldest first."""

    workers: list[Worker]


# ---------------------------------------------------------------------- keys, audit, health


class NewKey(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An API key to create; the scope `admin` implies the others, except `approve`."""

    name: Annotated[str, Meta(min_length=1, max_length=NAME_LENGTH_MAX)]
    scopes: Annotated[list[Scope], Meta(min_length=1, max_length=4)]


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """An API key without its secret; `created_by` is the key that made it, if one did."""

    key_id: str
    name: str
    scopes: list[Scope]
    created_at: datetime
    created_by: str | None
    revoked_at: datetime | None


class CreatedKey(msgspec.Struct, frozen=True, kw_only=True):
    """A new API key and its token, which is shown only once."""

    key: Key
    token: str


class Keys(msgspec.Struct, frozen=True, kw_only=True):
    """All API keys, revoked ones included."""

    keys: list[Key]


class AuditLine(msgspec.Struct, frozen=True, kw_only=True):
    """One change: who, when, what it was before and what it is after."""

    audit_id: int
    audited_at: datetime
    who: str
    action: str
    subject: str
    before: msgspec.Raw | None
    after: msgspec.Raw | None


class AuditPage(msgspec.Struct, frozen=True, kw_only=True):
    """Changes, the newest first; `next` is null on the last page."""

    items: list[AuditLine]
    next: str | None


class Live(msgspec.Struct, frozen=True, kw_only=True):
    """The process answers; this says nothing about its dependencies."""

    live: bool


DatabaseStatus = Literal["up", "away", "full", "read-only"]


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """Restart the process if `live` is false; send it requests only while `ready` is true.

    `database` says why it is not ready: `away`, `full` (its disk) or `read-only`.
    """

    live: bool
    ready: bool
    database: DatabaseStatus
