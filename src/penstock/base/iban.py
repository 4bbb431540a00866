"""IBAN and BIC: their format and check digits, and the bank that a register has for them.

Whether an account exists, only its bank knows. The package `schwifty`, of the extra `outbox`, is
imported at the first check, which takes up to 200 ms.
"""

import re
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from penstock.base.errors import MissingExtra

BANKS_KEPT = 10_000  # A search takes as long as the check, and most payments go to few banks.

_ELECTRONIC = re.compile(r"[A-Z0-9]+", re.ASCII)
_FORMAT = "must be capital letters and digits without spaces"


class Bank(NamedTuple):
    """A bank, as far as the register of its country has it."""

    country: str
    code: str
    name: str | None
    bic: str | None


def iban_fault(text: str, *, feature: str, sepa_only: bool = False) -> str | None:
    """Return what is wrong with an IBAN, or None; raises MissingExtra for `feature`."""
    fault, is_sepa = _checks(feature).check_iban(text)
    return fault if is_sepa or not sepa_only else fault or "is of a country outside SEPA"


def bic_fault(text: str, *, feature: str) -> str | None:
    """Return what is wrong with a BIC, or None; raises MissingExtra for `feature`."""
    return _checks(feature).check_bic(text)


def bank_of(iban: str, *, feature: str) -> Bank:
    """Return the bank of a valid IBAN; raises MissingExtra for `feature`."""
    return _checks(feature).bank_of(iban)


class _Checks(NamedTuple):
    """The checks, once the package is imported."""

    check_iban: Callable[[str], tuple[str | None, bool]]
    check_bic: Callable[[str], str | None]
    bank_of: Callable[[str], Bank]


@cache
def _checks(feature: str) -> _Checks:
    try:
        from schwifty import BIC, IBAN  # noqa: PLC0415  An extra.
        from schwifty.exceptions import SchwiftyException  # noqa: PLC0415
    except ModuleNotFoundError as absent:
        raise MissingExtra("outbox", feature) from absent

    def check_iban(text: str) -> tuple[str | None, bool]:
        if not _ELECTRONIC.fullmatch(text):
            return _FORMAT, False
        try:
            return None, IBAN(text).in_sepa_zone
        except SchwiftyException:
            return "is not an IBAN: its length, format or check digits are wrong", False

    def check_bic(text: str) -> str | None:
        if not _ELECTRONIC.fullmatch(text):
            return _FORMAT
        try:
            BIC(text)
        except SchwiftyException:
            return "is not a BIC: its length, format or country is wrong"
        return None

    banks: dict[tuple[str, str], Bank] = {}

    def bank_of(iban: str) -> Bank:
        found = IBAN(iban, allow_invalid=True)
        key = (found.country_code, found.bank_code)
        if key not in banks:
            if len(banks) >= BANKS_KEPT:
                banks.clear()
            bic = found.bic
            banks[key] = Bank(*key, found.bank_name, None if bic is None else str(bic))
        return banks[key]

    return _Checks(check_iban, check_bic, bank_of)
