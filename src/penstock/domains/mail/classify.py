"""What an SMTP reply means for a recipient. The answer is data: the rows of reply_table.csv.

The first row with a hint that matches decides. If there is none, the most specific row does: one
with an exact code first, then the more exact enhanced code, then a first digit, then named phases.
docs/explain/smtp-replies.md gives the reasons.
"""

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from typing import Literal, cast, get_args

from penstock.domains.mail.reply import RelayReply, SmtpPhase

Class = Literal[
    "done",  # Accepted.
    "transient",  # Try again later; costs an attempt.
    "permanent_suppress",  # Never try again; the address does not exist.
    "permanent",  # Never try again; the address may be good.
    "relay_fault",  # About the relay, not about the mail; costs no attempt.
    "greylisted",  # Try again by the schedule of greylisting.
    "throttled",  # Too much for the relay or the domain; slow down, costs no attempt.
    "too_many_recipients",  # Send to this recipient in another transaction.
    "unknown",  # The message may have been accepted; no reply came.
]

ANY = "*"
NONE = "-"  # In `codes`: no reply came. In `enhanced`: the reply has no enhanced code.
# The replies that differ in more than their text; servers use a few hundred.
KNOWN_MAX = 4_096


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyRow:
    """One row of the table; a cell with several patterns matches if one of them does."""

    phases: tuple[str, ...]
    codes: tuple[str, ...]
    enhanced: tuple[str, ...]
    hint: str
    reply_class: Class
    reason: str


def classify(reply: RelayReply, *, recipients: int = 1) -> Class:
    """Return the class of a reply; `recipients` is how many the transaction had.

    A reply after the message is about all recipients, so with several of them it does not show
    which address does not exist, and suppresses none.
    """
    if reply.code // 100 == 2:
        return "done"
    found = find_row(reply.phase, reply.code, enhanced=reply.enhanced, text=reply.text).reply_class
    if found == "permanent_suppress" and recipients > 1 and reply.phase != "rcpt":
        return "permanent"
    return found


def classify_failure(phase: SmtpPhase, kind: str, *, is_unknown: bool) -> Class:
    """Return the class of a send that got no reply; `kind` is the SMTP client's word for it."""
    hint = "unknown" if is_unknown else kind
    return find_row(phase, None, enhanced=None, text=hint).reply_class


def find_row(phase: SmtpPhase, code: int | None, *, enhanced: str | None, text: str) -> ReplyRow:
    """Return the row that decides; the table has one for everything that a server can reply."""
    candidates = _candidates(phase, code, enhanced)
    words = _words(text) if len(candidates) > 1 else ""
    return next(row for row, hint in candidates if hint is None or hint.search(words))


@cache
def rows() -> tuple[ReplyRow, ...]:
    """Return the table in the order of its file."""
    return tuple(_read_rows())


def _read_rows() -> Iterator[ReplyRow]:
    table = files("penstock.domains.mail").joinpath("reply_table.csv").read_text("utf-8")
    for cells in csv.DictReader(table.splitlines()):
        assert cells["class"] in get_args(Class), cells
        yield ReplyRow(
            phases=tuple(cells["phases"].split()),
            codes=tuple(cells["codes"].split()),
            enhanced=tuple(cells["enhanced"].split()),
            hint=cells["hint"],
            reply_class=cast("Class", cells["class"]),
            reason=cells["reason"],
        )


@lru_cache(maxsize=KNOWN_MAX)
def _candidates(
    phase: SmtpPhase, code: int | None, enhanced: str | None
) -> tuple[tuple[ReplyRow, re.Pattern[str] | None], ...]:
    """Return the rows that match but for their hints, in the order in which they decide."""
    hinted: list[tuple[ReplyRow, re.Pattern[str] | None]] = []
    ranked: list[tuple[tuple[int, int, int, int], ReplyRow]] = []
    for row in rows():
        phase_rank = _rank_phase(row, phase)
        code_rank = max(_rank_code(pattern, code) for pattern in row.codes)
        enhanced_rank = max(_rank_enhanced(pattern, enhanced) for pattern in row.enhanced)
        if min(phase_rank, code_rank, enhanced_rank) < 0:
            continue
        if row.hint:
            hinted.append((row, _hint_pattern(row.hint)))
        else:
            rank = (int(code_rank == EXACT), enhanced_rank, code_rank, phase_rank)
            ranked.append((rank, row))
    _, decisive = max(ranked, key=lambda entry: entry[0])
    return (*hinted, (decisive, None))


EXACT = 3
NO_MATCH = -1


def _rank_phase(row: ReplyRow, phase: SmtpPhase) -> int:
    if phase in row.phases:
        return 1
    return 0 if ANY in row.phases else NO_MATCH


def _rank_code(pattern: str, code: int | None) -> int:
    if code is None or pattern == NONE:
        return EXACT if code is None and pattern == NONE else NO_MATCH
    if pattern == ANY:
        return 0
    if pattern.endswith("xx"):
        return 1 if str(code)[0] == pattern[0] else NO_MATCH
    return EXACT if pattern == str(code) else NO_MATCH


def _rank_enhanced(pattern: str, enhanced: str | None) -> int:
    if pattern == ANY:
        return 0
    if enhanced is None or pattern == NONE:
        return 1 if enhanced is None and pattern == NONE else NO_MATCH
    if pattern == enhanced:
        return EXACT
    subject, _, detail = pattern.rpartition(".")
    enhanced_subject, _, enhanced_detail = enhanced.rpartition(".")
    if subject != enhanced_subject:
        return NO_MATCH
    if detail == ANY:
        return 1
    first, is_range, last = detail.partition("-")
    return 2 if is_range and int(first) <= int(enhanced_detail) <= int(last) else NO_MATCH


def _hint_pattern(hint: str) -> re.Pattern[str]:
    """Match whole words in their order; a hint that ends in `*` also matches longer last words."""
    ending = r"\w*" if hint.endswith(ANY) else ""
    return re.compile(rf"\b{re.escape(_words(hint))}{ending}\b")


def _words(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.lower()))
