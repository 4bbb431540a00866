"""What reached the rail, request by request, and whether each repeat of a payment was allowed.

The ledger of a rail that recognises keys shows one booking, however often a payment was sent. This
record shows every request; it is appended to a file, so that it survives a kill of the simulator.
"""

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from time import monotonic
from typing import Literal

import msgspec
from msgspec import Struct

from tests.fault.outbox_seeds.plan import BRIEF_KEY_SECONDS, FINAL_SECONDS, Mode

# Answers that prove that a request has not paid.
REFUSALS = frozenset({"BUSY", "REJECTED"})
# Answers to a query after which a payment may be sent.
CLEARING = frozenset({"NOT_FOUND", "REJECTED", "RETURNED"})


class Line(Struct, frozen=True, kw_only=True):
    """One event: a payment arrives, is answered, or a query that arrived at `since` is answered.

    Instants are on the monotonic clock, which all processes of a machine share.
    """

    what: Literal["pay", "answer", "query"]
    at: float
    key: str
    outbox_id: str = ""
    request: str = ""
    code: str = ""
    since: float = 0.0


@dataclass(slots=True)
class TrafficRecord:
    """Appends lines to a file; each line is one write."""

    path: Path
    _file: int = field(init=False)
    _numbers: "count[int]" = field(default_factory=count)

    def __post_init__(self) -> None:
        self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def pay(self, key: str, outbox_id: str) -> str:
        """Record that a payment has arrived; return the name of this request."""
        request = f"{os.getpid()}-{next(self._numbers)}"
        line = Line(what="pay", at=monotonic(), key=key, outbox_id=outbox_id, request=request)
        self._write(line)
        return request

    def answer(self, key: str, request: str, code: str) -> None:
        self._write(Line(what="answer", at=monotonic(), key=key, request=request, code=code))

    def query(self, key: str, code: str, *, since: float) -> None:
        self._write(Line(what="query", at=monotonic(), key=key, code=code, since=since))

    def _write(self, line: Line) -> None:
        os.write(self._file, b"\n" + msgspec.json.encode(line) + b";")


def read_traffic(path: Path) -> list[Line]:
    """Return the lines in their order; one that a kill has cut short is left out."""
    if not path.exists():
        return []
    lines = path.read_bytes().splitlines()
    decode = msgspec.json.Decoder(Line).decode
    return [decode(line.removesuffix(b";")) for line in lines if line.endswith(b";")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Payment:
    """A request to pay, and the code of the answer that the rail has sent, if it has."""

    at: float
    outbox_id: str
    code: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Forbidden:
    """A payment that was sent again although nothing allowed it, and why that is so."""

    outbox_id: str
    reason: str


def count_repeats(lines: Sequence[Line]) -> int:
    """Return how many payments were sent again."""
    payments = [line.key for line in lines if line.what == "pay"]
    return len(payments) - len(set(payments))


def find_forbidden(
    lines: Sequence[Line], mode: Mode, *, releases: Mapping[str, Sequence[float]]
) -> list[Forbidden]:
    """Return the payments that were sent again although nothing allowed it.

    `releases` has for each outbox_id the instants at which a person said that it may be sent again.
    """
    payments, queries = _sort(lines)
    found: list[Forbidden] = []
    for key, sent in payments.items():
        for place, repeat in enumerate(sent[1:], start=1):
            reason = _find_reason(
                sent[:place],
                repeat,
                mode=mode,
                queries=queries[key],
                releases=releases.get(repeat.outbox_id, ()),
            )
            if reason is not None:
                reason = f"sent {place + 1} times, and {reason}"
                found.append(Forbidden(outbox_id=repeat.outbox_id, reason=reason))
    return found


def _sort(lines: Sequence[Line]) -> tuple[dict[str, list[Payment]], dict[str, list[Line]]]:
    answers = {line.request: line.code for line in lines if line.what == "answer"}
    payments: dict[str, list[Payment]] = defaultdict(list)
    queries: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        if line.what == "pay":
            code = answers.get(line.request)
            payments[line.key].append(Payment(at=line.at, outbox_id=line.outbox_id, code=code))
        elif line.what == "query":
            queries[line.key].append(line)
    return payments, queries


def _find_reason(
    earlier: Sequence[Payment],
    repeat: Payment,
    *,
    mode: Mode,
    queries: Sequence[Line],
    releases: Sequence[float],
) -> str | None:
    """Return why a payment must not have been sent again, or None if it was allowed."""
    released_at = max((at for at in releases if at < repeat.at), default=float("-inf"))
    # What a person has decided about is no doubt any more, and neither is a refusal.
    doubts = [each for each in earlier if each.code not in REFUSALS and each.at > released_at]
    match mode:
        case "query" | "both":
            asked = [
                each
                for each in queries
                if earlier[-1].at < each.since and each.at < repeat.at and each.code in CLEARING
            ]
            if not asked:
                return "no query came before it"
            final_at = max((each.at for each in doubts), default=float("-inf")) + FINAL_SECONDS
            is_final = any(each.code != "NOT_FOUND" or each.since >= final_at for each in asked)
            if mode == "query" and not is_final:
                return "its absence was not final yet"
        case "brief":
            if doubts and repeat.at >= earlier[0].at + BRIEF_KEY_SECONDS:
                return "its key was not valid any more"
        case "neither":
            if doubts:
                return "nobody had released it"
        case "key":
            pass  # The key is valid for a year.
    return None
