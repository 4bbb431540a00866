"""The bodies of results and resolutions over REST."""

from datetime import datetime
from typing import Annotated
from uuid import UUID

from msgspec import Meta, Struct

from penstock.domains.outbox.reconcile.decide_result import ReportedStatus
from penstock.domains.outbox.reconcile.resolve import REFERENCE_LENGTH_MAX, InstructionResolution
from penstock.domains.outbox.reconcile.results import ReportOutcome

Text = Annotated[str, Meta(min_length=1, max_length=1000)]
Reference = Annotated[str, Meta(min_length=1, max_length=REFERENCE_LENGTH_MAX)]


class TakenResult(Struct, frozen=True, kw_only=True):
    """What became of a report; `status` is null if it decides nothing yet."""

    outbox_id: UUID
    status: ReportedStatus | None
    outcome: ReportOutcome


class ResolutionInput(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a person has found out: `paid` with the rail's reference, `failed`, or `again`.

    `attempt` is the one that the person looked at: a later one is not decided about.
    """

    resolution: InstructionResolution
    reason: Text
    reference: Reference | None = None
    attempt: Annotated[int, Meta(ge=1)] | None = None


class ResolvedInstruction(Struct, frozen=True, kw_only=True):
    """The instruction that was decided about."""

    outbox_id: UUID
    resolution: InstructionResolution


class ResolutionOfMany(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A decision about all instructions in doubt that match: `failed` or `again`.

    `before` is when they were held: a dry run returns the instant of its count, and a decision
    needs it, so that nothing is decided that came later. `after` is the `next` of the page before.
    """

    resolution: InstructionResolution
    reason: Text
    rail_type: str | None = None
    participant_id: str | None = None
    before: Annotated[datetime, Meta(tz=True)] | None = None
    dry_run: bool = False
    after: str | None = None


class ResolvedMany(Struct, frozen=True, kw_only=True):
    """How many matched and were changed; `next` continues with the next page.

    `before`: those that were held before this instant.
    """

    matched: int
    changed: int
    unchanged: int
    next: str | None
    before: datetime | None
