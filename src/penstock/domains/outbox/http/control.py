"""Control and decisions over REST: switches, suspensions, limits, calendars, approvals, gaps."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from penstock.contract.http import Call, Endpoint, NoParameters, endpoint
from penstock.contract.paging import read_id, take_page
from penstock.domains.outbox.audit.archive import Archive
from penstock.domains.outbox.control import (
    approval,
    cut_off,
    gap,
    limits,
    operate,
    suspension,
    switch,
    wire,
)
from penstock.domains.outbox.control.control_scope import find_notice
from penstock.domains.outbox.control.decide_many import BulkVerb, Filter, count_many, decide_page
from penstock.domains.outbox.control.instruction_facts import read_facts
from penstock.domains.outbox.wire import InstructionPath
from penstock.kernel.inspect import read_item
from penstock.kernel.item import ItemId
from penstock.kernel.operate import check_decision
from penstock.postgres.pool import Connection

# -------------------------------------------------------------------------------- decisions


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlApi:
    """The decisions that may archive something."""

    archive: Archive

    async def release(self, call: Call[InstructionPath, wire.Decided]) -> wire.InstructionState:
        """Try a held or failed instruction again."""
        decide = partial(operate.release, archive=self.archive, who=call.who)
        async with call.connection() as db:
            await decide(db, call.parameters.outbox_id, reason=call.body.reason)
            return await _state(db, call.parameters)

    async def hold_many(self, call: Call[NoParameters, wire.DecisionOnMany]) -> wire.DecidedMany:
        """Hold all heads that match."""
        return await _decide_many(call, "hold", archive=self.archive)

    async def release_many(self, call: Call[NoParameters, wire.DecisionOnMany]) -> wire.DecidedMany:
        """Try all held instructions that match again."""
        return await _decide_many(call, "release", archive=self.archive)

    async def skip(self, call: Call[InstructionPath, wire.Decided]) -> wire.InstructionState:
        """Pass an instruction over."""
        decide = partial(operate.skip, archive=self.archive, who=call.who)
        async with call.connection() as db:
            await decide(db, call.parameters.outbox_id, reason=call.body.reason)
            return await _state(db, call.parameters)

    async def approve(self, call: Call[InstructionPath, wire.Decided]) -> wire.Approval:
        """Approve an instruction."""
        decide = partial(approval.approve, archive=self.archive, who=call.who)
        async with call.connection() as db:
            made = await decide(db, call.parameters.outbox_id, reason=call.body.reason)
        return wire.to_wire_approval(made)

    async def reject(self, call: Call[InstructionPath, wire.Decided]) -> wire.Approval:
        """Reject an instruction."""
        decide = partial(approval.reject, archive=self.archive, who=call.who)
        async with call.connection() as db:
            made = await decide(db, call.parameters.outbox_id, reason=call.body.reason)
        return wire.to_wire_approval(made)

    async def resume(self, call: Call[wire.ParticipantRef, wire.Decided]) -> None:
        """Resume a participant."""
        decide = partial(suspension.resume, archive=self.archive, who=call.who)
        async with call.connection() as db:
            await decide(db, call.parameters.participant_id, reason=call.body.reason)


async def hold(call: Call[InstructionPath, wire.Decided]) -> wire.InstructionState:
    """Hold the head of a participant."""
    async with call.connection() as db:
        await operate.hold(db, call.parameters.outbox_id, who=call.who, reason=call.body.reason)
        return await _state(db, call.parameters)


async def list_waiting(call: Call[wire.PageQuery, None]) -> wire.WaitingPage:
    """Show what waits for an approval."""
    query = call.parameters
    async with call.connection() as db:
        found = await approval.list_waiting(
            db, after=read_id(query.after) or 0, limit=query.limit + 1
        )
    page, following = take_page(found, query.limit, lambda each: each.item_id)
    return wire.WaitingPage(waiting=[wire.to_wire_waiting(each) for each in page], next=following)


async def list_gaps(call: Call[wire.GapQuery, None]) -> wire.GapPage:
    """Show what was passed over or not used."""
    query = call.parameters
    async with call.connection() as db:
        found = await gap.list_gaps(
            db,
            participant_id=query.participant_id,
            after=read_id(query.after) or 0,
            limit=query.limit + 1,
        )
    page, following = take_page(found, query.limit, lambda each: each.gap_id)
    return wire.GapPage(gaps=[wire.to_wire_gap(each) for each in page], next=following)


# ----------------------------------------------------------------------- switches, suspension


async def list_switches(call: Call[NoParameters, None]) -> wire.Switches:
    """Show what is stopped."""
    async with call.connection() as db:
        found = await switch.list_switches(db)
    return wire.Switches(switches=[wire.to_wire_switch(each) for each in found])


async def stop(call: Call[NoParameters, wire.SwitchChange]) -> wire.Switch:
    """Stop everything, a rail or a participant."""
    given = call.body
    async with call.connection() as db:
        stopped = await switch.stop(db, given.scope, given.name, who=call.who, reason=given.reason)
        notice = await find_notice(db, stopped.scope, stopped.name)
    return wire.to_wire_switch(stopped, notice)


async def start(call: Call[NoParameters, wire.SwitchChange]) -> None:
    """Start again what was stopped."""
    given = call.body
    async with call.connection() as db:
        await switch.start(db, given.scope, given.name, who=call.who, reason=given.reason)


async def list_suspensions(call: Call[wire.PageQuery, None]) -> wire.SuspensionPage:
    """Show suspended participants."""
    query = call.parameters
    async with call.connection() as db:
        found = await suspension.list_suspensions(
            db, after=query.after or "", limit=query.limit + 1
        )
    page, following = take_page(found, query.limit, lambda each: each.participant_id)
    return wire.SuspensionPage(
        suspensions=[wire.to_wire_suspension(each) for each in page], next=following
    )


async def suspend(call: Call[wire.ParticipantRef, wire.Decided]) -> wire.Suspension:
    """Suspend a participant."""
    async with call.connection() as db:
        made = await suspension.suspend(
            db, call.parameters.participant_id, who=call.who, reason=call.body.reason
        )
        notice = await find_notice(db, "participant", made.participant_id)
    return wire.to_wire_suspension(made, notice)


async def list_failure_policies(call: Call[NoParameters, None]) -> wire.FailurePolicies:
    """Show what failed instructions do."""
    async with call.connection() as db:
        found = await suspension.list_failure_policies(db)
    return wire.FailurePolicies(policies=[wire.to_wire_policy(each) for each in found])


async def put_failure_policy(call: Call[NoParameters, wire.FailurePolicy]) -> wire.FailurePolicy:
    """Set what failed instructions do."""
    given = call.body
    async with call.connection() as db:
        made = await suspension.put_failure_policy(
            db,
            suspension.FailurePolicy(scope=given.scope, name=given.name, policy=given.policy),
            who=call.who,
        )
        notice = await find_notice(db, made.scope, made.name)
    return wire.to_wire_policy(made, notice)


# --------------------------------------------------------------------------- limits, calendars


async def list_limits(call: Call[NoParameters, None]) -> wire.LimitsList:
    """Show the limits."""
    async with call.connection() as db:
        found = await limits.list_limits(db)
    return wire.LimitsList(limits=[wire.to_wire_limits(each) for each in found])


async def put_limits(call: Call[NoParameters, wire.Limits]) -> wire.Limits:
    """Set limits."""
    async with call.connection() as db:
        made = await limits.put_limits(db, wire.to_limits(call.body), who=call.who)
        notice = await find_notice(db, made.scope, made.name)
    return wire.to_wire_limits(made, notice)


async def remove_limits(call: Call[wire.LimitsRef, None]) -> None:
    """Remove limits."""
    which = call.parameters
    async with call.connection() as db:
        await limits.remove_limits(
            db, which.currency, scope=which.scope, name=which.name, who=call.who
        )


async def list_calendars(call: Call[NoParameters, None]) -> wire.RailCalendars:
    """Show when rails are open."""
    async with call.connection() as db:
        found = await cut_off.list_calendars(db)
    return wire.RailCalendars(
        calendars=[
            wire.RailCalendar(rail_type=each.rail_type, calendar=each.calendar) for each in found
        ]
    )


async def put_calendar(call: Call[NoParameters, wire.RailCalendar]) -> wire.RailCalendar:
    """Set when a rail is open."""
    given = call.body
    async with call.connection() as db:
        await cut_off.put_calendar(
            db, given.rail_type, given.calendar, who=call.who, now=datetime.now(UTC)
        )
    return given


async def remove_calendar(call: Call[wire.RailRef, None]) -> None:
    """Let a rail be open always."""
    async with call.connection() as db:
        await cut_off.remove_calendar(db, call.parameters.rail_type, who=call.who)


def endpoints(api: ControlApi) -> Sequence[Endpoint]:
    """Return the endpoints of control and decisions."""
    return (
        endpoint(
            "POST", "/outbox/instructions/hold", api.hold_many, scope="admin",
            summary="Hold the waiting heads that match, or count them",
        ),
        endpoint(
            "POST", "/outbox/instructions/release", api.release_many, scope="admin",
            summary="Try the held instructions that match again, or count them",
        ),
        endpoint(
            "POST", "/outbox/instructions/{outbox_id}/hold", hold, scope="admin",
            summary="Hold the head of a participant; its followers wait",
        ),
        endpoint(
            "POST", "/outbox/instructions/{outbox_id}/release", api.release, scope="admin",
            summary="Try a held instruction again, or a failed one that blocks its participant",
        ),
        endpoint(
            "POST", "/outbox/instructions/{outbox_id}/skip", api.skip, scope="admin",
            summary="End the head of a participant as failed, so that the next one leaves",
        ),
        endpoint(
            "POST", "/outbox/instructions/{outbox_id}/approve", api.approve, scope="approve",
            summary="Approve an instruction that waits for a second person",
        ),
        endpoint(
            "POST", "/outbox/instructions/{outbox_id}/reject", api.reject, scope="approve",
            summary="Reject an instruction that waits for a second person; it fails",
        ),
        endpoint(
            "GET", "/outbox/approvals", list_waiting, scope="read",
            summary="List instructions that wait for a second person",
        ),
        endpoint(
            "GET", "/outbox/gaps", list_gaps, scope="read",
            summary="List numbers that operators passed over, or that producers did not use",
        ),
        endpoint(
            "GET", "/outbox/switches", list_switches, scope="read", summary="List what is stopped",
        ),
        endpoint(
            "POST", "/outbox/switches/stop", stop, scope="admin",
            summary="Stop everything, a rail or a participant, for the next call",
        ),
        endpoint(
            "POST", "/outbox/switches/start", start, scope="admin", statuses=(204,),
            summary="Start again what was stopped",
        ),
        endpoint(
            "GET", "/outbox/suspensions", list_suspensions, scope="read",
            summary="List suspended participants",
        ),
        endpoint(
            "POST", "/outbox/participants/{participant_id}/suspend", suspend, scope="admin",
            summary="Suspend a participant",
        ),
        endpoint(
            "POST", "/outbox/participants/{participant_id}/resume", api.resume, scope="admin",
            statuses=(204,), summary="Resume a participant; what was held leaves in its order",
        ),
        endpoint(
            "GET", "/outbox/failure-policies", list_failure_policies, scope="read",
            summary="List what a failed instruction does to its participant",
        ),
        endpoint(
            "PUT", "/outbox/failure-policies", put_failure_policy, scope="admin",
            summary="Set what a failed instruction does: block or suspend",
        ),
        endpoint(
            "GET", "/outbox/limits", list_limits, scope="read",
            summary="List the limits of amounts",
        ),
        endpoint(
            "PUT", "/outbox/limits", put_limits, scope="admin",
            summary="Set or replace limits in one currency",
        ),
        endpoint(
            "DELETE", "/outbox/limits/{currency}", remove_limits, scope="admin", statuses=(204,),
            summary="Remove the limits of all, a rail or a participant in one currency",
        ),
        endpoint(
            "GET", "/outbox/calendars", list_calendars, scope="read",
            summary="List when rails are open",
        ),
        endpoint(
            "PUT", "/outbox/calendars", put_calendar, scope="admin",
            summary="Set when a rail is open",
        ),
        endpoint(
            "DELETE", "/outbox/calendars/{rail_type}", remove_calendar, scope="admin",
            statuses=(204,), summary="Remove the calendar of a rail: it is always open",
        ),
    )  # fmt: skip


async def _state(db: Connection, which: InstructionPath) -> wire.InstructionState:
    facts = await read_facts(db, which.outbox_id)
    item = await read_item(db, facts.item_id)
    assert item is not None, "it was decided about a moment ago"
    return wire.InstructionState(
        outbox_id=facts.outbox_id,
        participant_id=facts.participant_id,
        sequence_id=facts.sequence_id,
        state=item.state,
        reason=item.reason,
    )


async def _decide_many(
    call: Call[NoParameters, wire.DecisionOnMany], verb: BulkVerb, *, archive: Archive
) -> wire.DecidedMany:
    body = call.body
    check_decision(who=call.who, reason=body.reason)
    only = Filter(
        participant_id=body.participant_id, with_reason=body.with_reason, before=body.before
    )
    after = read_id(body.after)
    async with call.connection() as db:
        if body.dry_run:
            matched = await count_many(db, verb, only)
            return wire.DecidedMany(matched=matched, changed=0, unchanged=0, next=None)
        decided = await decide_page(
            db, verb, only, archive=archive, who=call.who, reason=body.reason,
            after=None if after is None else ItemId(after),
        )  # fmt: skip
    return wire.DecidedMany(
        matched=decided.changed + decided.unchanged,
        changed=decided.changed,
        unchanged=decided.unchanged,
        next=None if decided.last_id is None else str(decided.last_id),
    )
