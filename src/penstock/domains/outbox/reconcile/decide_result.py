"""What a report of a rail changes about its instruction. Pure: what is decided, results.py applies.

The table in tests/domains/outbox/test_decide_result.py has one line for each rule.
"""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Literal

ReportedStatus = Literal["paid", "settled", "returned", "refused"]

# Where the instruction is. `in_doubt`: held, and may have been paid. `waiting` includes those that
# are held for another reason. `ended`: paid, failed, or removed by retention.
Place = Literal["in_doubt", "in_flight", "waiting", "ended"]

# What the code says of a report that names no status.
ReportedClass = Literal["paid", "terminal", "retryable"]

# `wait`: try again later. `nothing`: it is known, or changes nothing. `end_paid`, `end_failed`: end
# an instruction in doubt. `ask_person`: it may be about another call, so it decides nothing about
# the one in doubt. `hold`: leave a waiting one to a person. `hold_in_doubt`: hold a waiting one
# whose earlier call is in doubt. `paid_after_failure`: archive that a failed one was paid.
# `settled`, `returned`: archive that. `settled_after_refusal`: that too, although a refusal was
# archived. `contradicted`: only log it.
ReportStep = Literal[
    "wait",
    "nothing",
    "end_paid",
    "end_failed",
    "ask_person",
    "hold",
    "hold_in_doubt",
    "paid_after_failure",
    "settled",
    "returned",
    "settled_after_refusal",
    "contradicted",
]

# After these the instruction is dispatched or in doubt, and the same report is decided once more.
FIRST_STEPS: AbstractSet[ReportStep] = {"end_paid", "paid_after_failure", "hold_in_doubt"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """A report, and what is known about its instruction.

    `states` are those in the archive. `was_paid`: the rail has paid it, and not only accepted it;
    None if this process cannot know. `may_be_paid`: an earlier call is in doubt. `call_count`
    counts the calls that the rail may have had. `is_only_refused`: no report says that it was
    returned, and one that it was refused. `may_be_earlier`: a refusal or return that may be that
    of an earlier call than the one that was accepted or is in doubt.
    """

    status: ReportedStatus
    states: AbstractSet[str]
    place: Place
    was_paid: bool | None = False
    code_class: ReportedClass | None = None
    may_be_paid: bool = False
    call_count: int = 1
    is_only_refused: bool = False
    may_be_earlier: bool = False


def decide(report: Reported) -> ReportStep:
    """Return the next step; a report about an instruction in doubt may take two."""
    if report.states & {"DISPATCHED", "SETTLED", "RETURNED"}:
        return _refuse_dispatched(report) if report.status == "refused" else _settle(report)
    return _refuse(report) if report.status == "refused" else _pay(report)


def _pay(report: Reported) -> ReportStep:
    match report.place:
        case "in_doubt":
            return "ask_person" if report.may_be_earlier else "end_paid"
        case "ended":
            return "paid_after_failure"
        case "in_flight" | "waiting":
            # The last check before a call sees the report, and the handler what was paid.
            return "wait"


def _refuse(report: Reported) -> ReportStep:
    if report.code_class == "retryable":
        # It decides only about a call that was accepted: whether one was is not known yet, or the
        # lane's backoff decides when the next one is made.
        return "wait" if report.place in {"in_doubt", "in_flight"} else "nothing"
    match report.place:
        case "in_doubt":
            return "ask_person" if report.may_be_earlier else "end_failed"
        case "ended":
            return "nothing"
        case "in_flight":
            return "wait"
        case "waiting":
            return "hold_in_doubt" if report.may_be_paid else "hold"


def _refuse_dispatched(report: Reported) -> ReportStep:
    """A refusal after the acceptance is final, also one that would allow another call.

    RETURNED allows the instruction under another key, which must not pay a second time.
    """
    if "RETURNED" in report.states:
        return "nothing"
    if report.may_be_earlier:
        return "contradicted"
    if "SETTLED" in report.states:
        # What a rail has settled it cannot refuse any more: by its code, this is a return. With
        # several calls it may be the refusal of another one.
        is_return = report.code_class is not None and report.call_count <= 1
        return "returned" if is_return else "contradicted"
    if report.was_paid is None:
        return "wait"
    return "contradicted" if report.was_paid else "returned"


def _settle(report: Reported) -> ReportStep:
    match report.status:
        case "settled" if "SETTLED" not in report.states:
            if "RETURNED" not in report.states:
                return "settled"
            return "settled_after_refusal" if report.is_only_refused else "nothing"
        case "returned" if "RETURNED" not in report.states:
            return "contradicted" if report.may_be_earlier else "returned"
        case _:
            return "nothing"
