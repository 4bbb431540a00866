"""What goes over HTTP about control and decisions, as types. Input refuses unknown fields."""

from datetime import datetime
from decimal import Decimal
from typing import Annotated
from uuid import UUID

from msgspec import UNSET, Meta, Struct, UnsetType

from penstock.calendar.calendar import Calendar
from penstock.contract.paging import Limit as PageLimit
from penstock.domains.outbox.control import approval, gap, limits, suspension, switch
from penstock.domains.outbox.control.approval import ApprovalDecision
from penstock.domains.outbox.control.control_scope import NAME_LENGTH_MAX, ControlScope
from penstock.domains.outbox.control.suspension import Policy
from penstock.kernel.settle import REASON_LENGTH_MAX

Instant = Annotated[datetime, Meta(tz=True)]
Name = Annotated[str, Meta(min_length=1, max_length=NAME_LENGTH_MAX)]
Reason = Annotated[str, Meta(min_length=1, max_length=REASON_LENGTH_MAX)]
Cursor = Annotated[str, Meta(description="The `next` of the page before.", max_length=255)]
# Text, because a JSON number may be a float.
Amount = Annotated[str, Meta(pattern=r"^[0-9]{1,18}(\.[0-9]{1,4})?$")]
Currency = Annotated[str, Meta(pattern=r"^[A-Z]{3}$")]
Notice = Annotated[
    str | UnsetType, Meta(description="Only in the answer to a change: the name may be mistyped.")
]

# ------------------------------------------------------------------------------- parameters


class ParticipantRef(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which participant."""

    participant_id: Name


class RailRef(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which rail."""

    rail_type: Name


class PageQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which page."""

    after: Cursor | None = None
    limit: PageLimit = 100


class GapQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which page of gaps."""

    participant_id: Name | None = None
    after: Cursor | None = None
    limit: PageLimit = 100


# -------------------------------------------------------------------------------- decisions


class Decided(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why something was decided."""

    reason: Reason


class DecisionOnMany(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which instructions to hold or release, and why. One call decides about 500 at most."""

    reason: Reason
    participant_id: Name | None = None
    with_reason: Reason | None = None
    before: Instant | None = None
    dry_run: bool = False
    after: Cursor | None = None


class DecidedMany(Struct, frozen=True, kw_only=True):
    """How many matched, were changed, or were left; `next` continues if there are more."""

    matched: int
    changed: int
    unchanged: int
    next: str | None


class InstructionState(Struct, frozen=True, kw_only=True):
    """Where the instruction is in its lane now, such as `ready` or `held`, and why."""

    outbox_id: UUID
    participant_id: str
    sequence_id: int
    state: str
    reason: str | None


class Approval(Struct, frozen=True, kw_only=True):
    """A second person's decision."""

    outbox_id: UUID
    decision: ApprovalDecision
    key_id: str
    reason: str
    decided_at: Instant


class PendingApproval(Struct, frozen=True, kw_only=True):
    """An instruction that waits for an approval."""

    outbox_id: UUID
    instruction_id: str
    participant_id: str
    sequence_id: int
    rail_type: str
    amount: Decimal
    currency: str
    created_at: Instant
    created_by: str
    held_at: Instant
    reason: str


class WaitingPage(Struct, frozen=True, kw_only=True):
    """What waits for an approval, the oldest first."""

    waiting: list[PendingApproval]
    next: str | None


class Gap(Struct, frozen=True, kw_only=True):
    """A number that an operator passed over; without an instruction, one that was not used."""

    outbox_id: UUID | None
    instruction_id: str | None
    participant_id: str
    sequence_id: int
    who: str
    reason: str
    at: Instant


class GapPage(Struct, frozen=True, kw_only=True):
    """Gaps, the oldest first."""

    gaps: list[Gap]
    next: str | None


# ---------------------------------------------------------------------------- what holds back


class SwitchChange(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to stop or start, and why; `name` is absent for everything."""

    scope: ControlScope
    reason: Reason
    name: Name | None = None


class Switch(Struct, frozen=True, kw_only=True):
    """Something that is stopped; its name is * for everything."""

    scope: ControlScope
    name: str
    reason: str
    who: str
    at: Instant
    notice: Notice = UNSET


class Switches(Struct, frozen=True, kw_only=True):
    """What is stopped, the latest first."""

    switches: list[Switch]


class Suspension(Struct, frozen=True, kw_only=True):
    """A suspended participant, and the failed instruction that suspended it, if one did."""

    participant_id: str
    reason: str
    who: str
    at: Instant
    outbox_id: UUID | None
    notice: Notice = UNSET


class SuspensionPage(Struct, frozen=True, kw_only=True):
    """Suspended participants, by their ids."""

    suspensions: list[Suspension]
    next: str | None


class FailurePolicy(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a failed instruction does; `name` is absent or * for all."""

    scope: ControlScope
    policy: Policy
    name: Name | None = None
    notice: Notice = UNSET


class FailurePolicies(Struct, frozen=True, kw_only=True):
    """What was set."""

    policies: list[FailurePolicy]


class Limits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits in one currency; `name` is absent or * for all."""

    scope: ControlScope
    currency: Currency
    name: Name | None = None
    amount_max: Amount | None = None
    approval_above: Amount | None = None
    day_amount_max: Amount | None = None
    notice: Notice = UNSET


class LimitsRef(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which limits; those of all if `scope` and `name` are absent."""

    currency: Currency
    scope: ControlScope = "all"
    name: Name | None = None


class LimitsList(Struct, frozen=True, kw_only=True):
    """All limits."""

    limits: list[Limits]


class RailCalendar(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When a rail is open."""

    rail_type: Name
    calendar: Calendar


class RailCalendars(Struct, frozen=True, kw_only=True):
    """The calendars of rails that have one."""

    calendars: list[RailCalendar]


# ------------------------------------------------------------------------------ conversions


def to_limits(given: Limits) -> limits.AmountLimits:
    """Return limits with exact numbers."""
    return limits.AmountLimits(
        scope=given.scope,
        name=given.name,
        currency=given.currency,
        amount_max=_to_decimal(given.amount_max),
        approval_above=_to_decimal(given.approval_above),
        day_amount_max=_to_decimal(given.day_amount_max),
    )


def to_wire_limits(found: limits.AmountLimits, notice: str | None = None) -> Limits:
    """Return limits as they are shown."""
    return Limits(
        scope=found.scope,
        name=found.name,
        currency=found.currency,
        amount_max=_to_text(found.amount_max),
        approval_above=_to_text(found.approval_above),
        day_amount_max=_to_text(found.day_amount_max),
        notice=notice or UNSET,
    )


def to_wire_switch(found: switch.Switch, notice: str | None = None) -> Switch:
    """Return a switch as it is shown."""
    return Switch(
        scope=found.scope,
        name=found.name,
        reason=found.reason,
        who=found.who,
        at=found.at,
        notice=notice or UNSET,
    )


def to_wire_suspension(found: suspension.Suspension, notice: str | None = None) -> Suspension:
    """Return a suspension as it is shown."""
    return Suspension(
        participant_id=found.participant_id,
        reason=found.reason,
        who=found.who,
        at=found.at,
        outbox_id=found.outbox_id,
        notice=notice or UNSET,
    )


def to_wire_policy(found: suspension.FailurePolicy, notice: str | None = None) -> FailurePolicy:
    """Return a failure policy as it is shown."""
    return FailurePolicy(
        scope=found.scope, name=found.name, policy=found.policy, notice=notice or UNSET
    )


def to_wire_approval(found: approval.Approval) -> Approval:
    """Return a decision as it is shown."""
    return Approval(
        outbox_id=found.outbox_id,
        decision=found.decision,
        key_id=found.key_id,
        reason=found.reason,
        decided_at=found.decided_at,
    )


def to_wire_waiting(found: approval.PendingApproval) -> PendingApproval:
    """Return an instruction that waits as it is shown."""
    return PendingApproval(
        outbox_id=found.outbox_id,
        instruction_id=found.instruction_id,
        participant_id=found.participant_id,
        sequence_id=found.sequence_id,
        rail_type=found.rail_type,
        amount=found.amount,
        currency=found.currency,
        created_at=found.created_at,
        created_by=found.created_by,
        held_at=found.held_at,
        reason=found.reason,
    )


def to_wire_gap(found: gap.Gap) -> Gap:
    """Return a gap as it is shown."""
    return Gap(
        outbox_id=found.outbox_id,
        instruction_id=found.instruction_id,
        participant_id=found.participant_id,
        sequence_id=found.sequence_id,
        who=found.who,
        reason=found.reason,
        at=found.at,
    )


def _to_decimal(amount: str | None) -> Decimal | None:
    return None if amount is None else Decimal(amount)


def _to_text(amount: Decimal | None) -> str | None:
    return None if amount is None else f"{amount:f}"
