"""The rules of payments over REST: limits, and the rules of item types."""

from collections.abc import Sequence
from datetime import UTC, datetime

from penstock.contract.http import Call, Endpoint, NoParameters, endpoint
from penstock.domains.payments.control import limits, type_rules, wire


async def list_limits(call: Call[NoParameters, None]) -> wire.Limits:
    """Show the limits."""
    async with call.connection() as db:
        found = await limits.list_limits(db)
    return wire.Limits(limits=[wire.to_wire_limit(each) for each in found])


async def put_limit(call: Call[NoParameters, wire.Limit]) -> wire.Limit:
    """Set a limit."""
    limit = wire.to_limit(call.body)
    async with call.connection() as db:
        await limits.put_limit(db, limit, who=call.who)
    return wire.to_wire_limit(limit)


async def remove_limit(call: Call[wire.LimitRef, None]) -> None:
    """Remove a limit."""
    which = call.parameters
    async with call.connection() as db:
        await limits.remove_limit(db, which.currency, which.participant_id, who=call.who)


async def list_rules(call: Call[NoParameters, None]) -> wire.Rules:
    """Show the rules of item types."""
    async with call.connection() as db:
        found = await type_rules.list_rules(db)
    return wire.Rules(rules=[wire.to_wire_rule(each) for each in found])


async def put_rule(call: Call[NoParameters, wire.Rule]) -> wire.Rule:
    """Set the rule of an item type."""
    rule = wire.to_rule(call.body)
    async with call.connection() as db:
        await type_rules.put_rule(db, rule, who=call.who, now=datetime.now(UTC))
    return wire.to_wire_rule(rule)


async def remove_rule(call: Call[wire.ItemTypeRef, None]) -> None:
    """Let an item type have no rule."""
    async with call.connection() as db:
        await type_rules.remove_rule(db, call.parameters.item_type, who=call.who)


def endpoints() -> Sequence[Endpoint]:
    """Return the endpoints of rules. They are not below /payments, where any id may follow."""
    return (
        endpoint(
            "GET", "/payment-limits", list_limits, scope="read",
            summary="List the limits of amounts",
        ),
        endpoint(
            "PUT", "/payment-limits", put_limit, scope="admin",
            summary="Set or replace the limits of a participant, or of all, in one currency",
        ),
        endpoint(
            "DELETE", "/payment-limits/{currency}", remove_limit, scope="admin", statuses=(204,),
            summary="Remove the limits of a participant, or of all, in one currency",
        ),
        endpoint(
            "GET", "/payment-rules", list_rules, scope="read",
            summary="List the rules of item types",
        ),
        endpoint(
            "PUT", "/payment-rules", put_rule, scope="admin",
            summary="Set or replace the rule of an item type: duplicates and calendar",
        ),
        endpoint(
            "DELETE", "/payment-rules/{item_type}", remove_rule, scope="admin", statuses=(204,),
            summary="Remove the rule of an item type: duplicates are allowed, at any time",
        ),
    )  # fmt: skip
