"""How an attempt of an instruction ended, as a value that fills the archive."""

from typing import Literal

import msgspec

from penstock.kernel.item import Hold
from penstock.kernel.settle import to_text

EndState = Literal["DISPATCHED", "RETRYABLE", "UNKNOWN", "FAILED"]

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


def hold_unknown(reason: str, ending: RailEnding | None = None) -> Hold:
    """Hold an instruction that may have been paid.

    Without an ending, as the kernel calls it for a handler that raised, was cancelled or took too
    long, a call is presumed.
    """
    text = to_text(reason)
    if ending is None:
        ending = RailEnding(
            state="UNKNOWN", called=True, error_code="NO_OUTCOME", error_message=text
        )
    return Hold(UNKNOWN_PREFIX + text, ending)
