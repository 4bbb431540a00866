"""How an attempt of an instruction ended, as a value that fills the archive.

Texts are those of rails and of adapters of other packages: `make_ending` makes each one fit a row.
"""

from typing import Literal

import msgspec

from penstock.kernel.item import Hold
from penstock.kernel.settle import to_text

EndState = Literal["DISPATCHED", "RETRYABLE", "UNKNOWN", "FAILED"]

# A reference is indexed, and a row of an index has 2,704 bytes at most: 500 characters fit.
REFERENCE_LENGTH_MAX = 500
# Held items whose reason begins like this may have been paid; the reconciler looks for it.
UNKNOWN_PREFIX = "unknown: "


class RailEnding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The `result` of an attempt's outcome: what the archive keeps of it.

    `called`: the rail may have got the instruction in this attempt. `is_pending`: the rail has
    accepted it, and settles or returns it later. `awaits_settlement`: the rail is to be asked
    later which of the two it was.
    """

    state: EndState
    called: bool = False
    rail_code: str | None = None
    rail_reference: str | None = None
    error_code: str | None = None
    error_message: str | None = None
    is_pending: bool = False
    awaits_settlement: bool = False


def make_ending(
    state: EndState,
    *,
    called: bool = False,
    rail_code: object = None,
    rail_reference: object = None,
    error_code: str | None = None,
    error_message: object = None,
    is_pending: bool = False,
    awaits_settlement: bool = False,
) -> RailEnding:
    """Return an ending whose texts PostgreSQL can store, whatever the rail has said.

    One that it cannot store would roll back the settle of a whole lease, again and again; and an
    ending without a JSON form would lose that there was a call.
    """
    return RailEnding(
        state=state,
        called=called,
        rail_code=to_column(rail_code),
        rail_reference=to_reference(rail_reference),
        error_code=error_code,
        error_message=to_column(error_message),
        is_pending=is_pending,
        awaits_settlement=awaits_settlement,
    )


def to_column(text: object) -> str | None:
    """Return a text that a row of the archive can have."""
    return None if text is None else to_text(text)


def to_reference(text: object) -> str | None:
    """Return a reference that a row of the archive, and its index, can have."""
    return None if text is None else to_text(text)[:REFERENCE_LENGTH_MAX]


def hold_unknown(reason: str, ending: RailEnding | None = None) -> Hold:
    """Hold an instruction that may have been paid.

    Without an ending, as the kernel calls it for a handler that raised, was cancelled or took too
    long, a call is presumed.
    """
    text = to_text(reason)
    if ending is None:
        ending = make_ending("UNKNOWN", called=True, error_code="NO_OUTCOME", error_message=text)
    return Hold(UNKNOWN_PREFIX + text, ending)
