"""Checks of a destination: format and check digits, by the scheme of the rail.

Whether the account exists, only the rail knows. The packages of the extra `outbox` are imported at
the first check that needs them.
"""

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Literal, cast, get_args

from penstock.base.errors import InvalidInput, MissingExtra
from penstock.base.iban import bic_fault, iban_fault

DestinationScheme = Literal["any", "sepa", "us"]
SCHEMES: tuple[DestinationScheme, ...] = get_args(DestinationScheme)

SEPA = "a rail with the scheme sepa"
TEXT_MAX = 140  # The longest name that ISO 20022 takes.
# The first two digits that the Federal Reserve has assigned: banks, thrifts, electronic, cheques.
_ROUTING_PREFIXES = (range(1, 13), range(21, 33), range(61, 73), range(80, 81))
_ACCOUNT = re.compile(r"[0-9A-Za-z-]{1,17}", re.ASCII)  # The width of the field in NACHA files.


def check_destination(
    scheme: DestinationScheme, payload: Mapping[str, object], *, within: str = "payload"
) -> None:
    """Raise InvalidInput, with the field below `within`, for a destination that cannot be right."""
    field = f"{within}.destination"
    given = payload.get("destination")
    # Nearly always a dict; to ask an abstract class takes ten times as long.
    if not given or (type(given) is not dict and not isinstance(given, Mapping)):
        raise InvalidInput(field, "is missing or not an object with fields")
    destination = cast("Mapping[str, object]", given)
    match scheme:
        case "any":
            pass
        case "sepa":
            _check_sepa(destination, field)
        case "us":
            _check_us(destination, field)


def prepare_scheme(scheme: DestinationScheme) -> None:
    """Import what the checks of a scheme need, up to 200 ms; raises MissingExtra."""
    match scheme:
        case "any":
            pass
        case "sepa":
            bic_fault("", feature=SEPA)
        case "us":
            _is_routing_number()


def _check_sepa(destination: Mapping[str, object], field: str) -> None:
    iban = _text(destination, "iban", field)
    reason = iban_fault(iban, feature=SEPA, sepa_only=True)
    if reason is not None:
        raise InvalidInput(f"{field}.iban", reason)
    if destination.get("bic") is not None:
        bic = _text(destination, "bic", field)
        reason = bic_fault(bic, feature=SEPA)
        if reason is not None:
            raise InvalidInput(f"{field}.bic", reason)


def _check_us(destination: Mapping[str, object], field: str) -> None:
    routing = _text(destination, "routing_number", field)
    if not _is_routing_number()(routing):
        raise InvalidInput(f"{field}.routing_number", "is not a US routing number")
    account = _text(destination, "account_number", field)
    if not _ACCOUNT.fullmatch(account):
        raise InvalidInput(f"{field}.account_number", "must be 1 to 17 letters, digits or dashes")


def _text(destination: Mapping[str, object], name: str, field: str) -> str:
    value = destination.get(name)
    if not isinstance(value, str) or not value or len(value) > TEXT_MAX:
        raise InvalidInput(f"{field}.{name}", f"must be a text of 1 to {TEXT_MAX} characters")
    return value


@cache
def _is_routing_number() -> Callable[[str], bool]:
    try:
        from stdnum.us import rtn  # noqa: PLC0415  An extra.
    except ModuleNotFoundError as absent:
        raise MissingExtra("outbox", "a rail with the scheme us") from absent
    has_check_digit = cast("Callable[[str], bool]", cast("Any", rtn).is_valid)

    def is_routing_number(text: str) -> bool:
        if not (len(text) == 9 and text.isascii() and text.isdigit()):
            return False
        return any(int(text[:2]) in each for each in _ROUTING_PREFIXES) and has_check_digit(text)

    return is_routing_number
