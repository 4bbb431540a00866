"""Exact money: reads amount and currency from a payload, and never through a float.

`currencies.csv` has the active codes of ISO 4217 that have minor units, with their exponent, as the
maintenance agency (SIX) lists them in 2026. Codes without one (gold, test codes) cannot be paid.
"""

import csv
import re
from collections.abc import Mapping
from decimal import Decimal
from functools import cache
from importlib.resources import files

import msgspec

from penstock.base.errors import InvalidInput

DIGITS_MAX = 18  # Of minor units: the limit of ISO 20022, and within a bigint.
MINOR_MAX = 10**DIGITS_MAX - 1
LIMIT_MAX = Decimal(10) ** DIGITS_MAX  # More than any amount.

_AMOUNT = re.compile(r"(0|[1-9][0-9]*)(?:\.([0-9]+))?", re.ASCII)
_TEXT_MAX = 40  # A longer text is refused before it is searched.


class InstructedAmount(msgspec.Struct, frozen=True):
    """An exact amount above zero, in units of the currency. A struct, as it is made per attempt."""

    amount: Decimal
    currency: str

    @property
    def minor(self) -> int:
        """Return the amount as an integer number of minor units, such as cents."""
        return int(self.amount.scaleb(exponent_of(self.currency)))

    @property
    def text(self) -> str:
        """Return the amount as a decimal string with all decimals of the currency."""
        return f"{self.amount:.{exponent_of(self.currency)}f}"


def read_money(payload: Mapping[str, object], *, prefix: str = "payload.") -> InstructedAmount:
    """Return the money of a payload; raises InvalidInput with the field after `prefix`.

    The payload has `currency`, and either `amount`, a decimal string in units of the currency, or
    `amount_minor`, an integer.
    """
    currency = _read_currency(payload.get("currency"), f"{prefix}currency")
    amount, minor = payload.get("amount"), payload.get("amount_minor")
    if amount is not None and minor is not None:
        raise InvalidInput(f"{prefix}amount", "must not be given with amount_minor")
    if minor is not None:
        field = f"{prefix}amount_minor"
        count = _read_minor(minor, field)
    else:
        field = f"{prefix}amount"
        count = _read_amount(amount, currency, field)
    if count <= 0:
        raise InvalidInput(field, "must be above zero")
    if count > MINOR_MAX:
        raise InvalidInput(field, f"must have at most {DIGITS_MAX} digits")
    return InstructedAmount(Decimal(count).scaleb(-exponent_of(currency)), currency)


def check_limits(limits: Mapping[str, Decimal | None], currency: str) -> None:
    """Raise InvalidInput, with the field, for limits of amounts that cannot be meant like this."""
    decimals = exponent_of(_read_currency(currency, "currency"))
    for field, amount in limits.items():
        if amount is None:
            continue
        if not (amount.is_finite() and 0 <= amount <= LIMIT_MAX):
            raise InvalidInput(field, "must be an amount of zero or more")
        if len(f"{amount:f}".partition(".")[2]) > decimals:
            # 100.000 may be meant as a hundred thousand, and would be a hundred.
            raise InvalidInput(field, f"has more than the {decimals} decimals of {currency}")


def exponent_of(currency: str) -> int:
    """Return how many decimals a currency has; raises KeyError for one that is not listed."""
    return currencies()[currency]


def plain(amount: Decimal) -> Decimal:
    """Return the same amount without an exponent: the database driver returns 10000 as 1E+4."""
    return Decimal(f"{amount:f}") if "E" in str(amount) else amount


@cache
def currencies() -> Mapping[str, int]:
    """Return the exponents of all currencies, by code."""
    text = (files("penstock.base") / "currencies.csv").read_text(encoding="ascii")
    return {row["code"]: int(row["exponent"]) for row in csv.DictReader(text.splitlines())}


def _read_currency(value: object, field: str) -> str:
    if not isinstance(value, str):
        raise InvalidInput(field, "is missing or not a string")
    if value not in currencies():
        raise InvalidInput(field, "is not an active ISO 4217 code in capital letters")
    return value


def _read_amount(value: object, currency: str, field: str) -> int:
    """Return a decimal string as minor units, without rounding."""
    if not isinstance(value, str):
        raise InvalidInput(field, "must be a decimal string such as '12.50'; numbers are not exact")
    matched = _AMOUNT.fullmatch(value) if len(value) <= _TEXT_MAX else None
    if matched is None:
        raise InvalidInput(field, "must be a plain decimal number above zero, such as '12.50'")
    whole, decimals = matched[1], matched[2] or ""
    exponent = exponent_of(currency)
    if len(decimals) > exponent:
        raise InvalidInput(field, f"has more than the {exponent} decimals of {currency}")
    return int(whole + decimals.ljust(exponent, "0"))


def _read_minor(value: object, field: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidInput(field, "must be an integer number of minor units")
    return value
