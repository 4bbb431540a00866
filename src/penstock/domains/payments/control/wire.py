"""What goes over HTTP about rules, as types. Input refuses unknown fields."""

from decimal import Decimal
from typing import Annotated

from msgspec import Meta, Struct

from penstock.calendar.calendar import Calendar
from penstock.domains.payments.control import limits, type_rules

Name = Annotated[str, Meta(min_length=1, max_length=255)]
# Text, because a JSON number may be a float.
Amount = Annotated[str, Meta(pattern=r"^[0-9]{1,18}(\.[0-9]{1,4})?$")]
Currency = Annotated[str, Meta(pattern=r"^[A-Z]{3}$")]


class LimitRef(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which limit; without a participant, that of all."""

    currency: Currency
    participant_id: Name | None = None


class ItemTypeRef(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which item type."""

    item_type: Name


class Limit(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits in one currency, at least one; without a participant, of all."""

    currency: Currency
    participant_id: Name | None = None
    amount_max: Amount | None = None
    day_amount_max: Amount | None = None


class Limits(Struct, frozen=True, kw_only=True):
    """All limits, those of all participants first."""

    limits: list[Limit]


class Rule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The rule of an item type; what is absent is off."""

    item_type: Name
    refuses_duplicates: bool = False
    calendar: Calendar | None = None


class Rules(Struct, frozen=True, kw_only=True):
    """The rules of the item types that have one."""

    rules: list[Rule]


def to_limit(given: Limit) -> limits.PaymentLimit:
    """Return a limit with exact numbers."""
    return limits.PaymentLimit(
        currency=given.currency,
        participant_id=given.participant_id,
        amount_max=None if given.amount_max is None else Decimal(given.amount_max),
        day_amount_max=None if given.day_amount_max is None else Decimal(given.day_amount_max),
    )


def to_wire_limit(found: limits.PaymentLimit) -> Limit:
    """Return a limit as it is shown."""
    return Limit(
        currency=found.currency,
        participant_id=found.participant_id,
        amount_max=None if found.amount_max is None else f"{found.amount_max:f}",
        day_amount_max=None if found.day_amount_max is None else f"{found.day_amount_max:f}",
    )


def to_rule(given: Rule) -> type_rules.TypeRule:
    """Return a rule as the domain takes it."""
    return type_rules.TypeRule(
        item_type=given.item_type,
        refuses_duplicates=given.refuses_duplicates,
        calendar=given.calendar,
    )


def to_wire_rule(found: type_rules.TypeRule) -> Rule:
    """Return a rule as it is shown."""
    return Rule(
        item_type=found.item_type,
        refuses_duplicates=found.refuses_duplicates,
        calendar=found.calendar,
    )
