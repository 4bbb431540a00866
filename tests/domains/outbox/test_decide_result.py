"""Each rule about a report, as one line of a table."""

from typing import Any

import pytest

from penstock.domains.outbox.reconcile.decide_result import (
    Place,
    Reported,
    ReportedStatus,
    ReportStep,
    decide,
)

DISPATCHED = {"DISPATCHED"}
SETTLED = {"DISPATCHED", "SETTLED"}
RETURNED = {"DISPATCHED", "RETURNED"}
FAILED = {"UNKNOWN", "FAILED"}
BY_CODE: dict[str, Any] = {"code_class": "terminal"}
FOR_NOW: dict[str, Any] = {"code_class": "retryable"}
WAS_PAID: dict[str, Any] = {"was_paid": True}
NOBODY_KNOWS: dict[str, Any] = {"was_paid": None}
TWICE: dict[str, Any] = {"call_count": 2}
MAY_BE_EARLIER: dict[str, Any] = {"may_be_earlier": True, "call_count": 2}
MAY_BE_PAID: dict[str, Any] = {"may_be_paid": True}
ONLY_REFUSED: dict[str, Any] = {"is_only_refused": True}

# The status of the report, the states in the archive, where the item is, and what else is known.
RULES: list[tuple[ReportedStatus, set[str], Place, dict[str, Any], ReportStep]] = [
    # Nothing is known of an acceptance yet.
    ("paid", {"UNKNOWN"}, "in_doubt", {}, "end_paid"),
    ("settled", {"UNKNOWN"}, "in_doubt", {}, "end_paid"),
    ("returned", {"UNKNOWN"}, "in_doubt", {}, "end_paid"),
    ("refused", {"UNKNOWN"}, "in_doubt", {}, "end_failed"),
    ("refused", {"UNKNOWN"}, "in_doubt", BY_CODE, "end_failed"),
    ("refused", {"UNKNOWN"}, "in_doubt", FOR_NOW, "wait"),
    ("refused", {"UNKNOWN"}, "in_doubt", MAY_BE_EARLIER, "ask_person"),
    ("returned", {"UNKNOWN"}, "in_doubt", MAY_BE_EARLIER, "ask_person"),
    ("paid", set(), "in_flight", {}, "wait"),
    ("refused", set(), "in_flight", {}, "wait"),
    ("refused", set(), "in_flight", FOR_NOW, "wait"),
    ("settled", set(), "waiting", {}, "wait"),
    ("refused", set(), "waiting", {}, "hold"),
    ("refused", {"RETRYABLE"}, "waiting", BY_CODE, "hold"),
    ("refused", {"UNKNOWN"}, "waiting", MAY_BE_PAID, "hold_in_doubt"),
    ("refused", {"RETRYABLE"}, "waiting", FOR_NOW, "nothing"),
    ("paid", FAILED, "ended", {}, "paid_after_failure"),
    ("returned", FAILED, "ended", {}, "paid_after_failure"),
    ("refused", FAILED, "ended", {}, "nothing"),
    ("refused", FAILED, "ended", FOR_NOW, "nothing"),
    # The rail has accepted or paid it.
    ("paid", DISPATCHED, "ended", {}, "nothing"),
    ("settled", DISPATCHED, "ended", {}, "settled"),
    ("returned", DISPATCHED, "ended", {}, "returned"),
    ("refused", DISPATCHED, "ended", {}, "returned"),
    ("refused", DISPATCHED, "ended", BY_CODE, "returned"),
    ("refused", DISPATCHED, "ended", FOR_NOW, "returned"),
    ("refused", FAILED | DISPATCHED, "ended", {}, "returned"),
    ("refused", DISPATCHED, "ended", WAS_PAID, "contradicted"),
    ("refused", DISPATCHED, "ended", BY_CODE | WAS_PAID, "contradicted"),
    ("refused", DISPATCHED, "ended", NOBODY_KNOWS, "wait"),
    ("refused", FAILED | DISPATCHED, "ended", MAY_BE_EARLIER, "contradicted"),
    ("returned", FAILED | DISPATCHED, "ended", MAY_BE_EARLIER, "contradicted"),
    # It has settled it.
    ("settled", SETTLED, "ended", {}, "nothing"),
    ("returned", SETTLED, "ended", {}, "returned"),
    ("refused", SETTLED, "ended", WAS_PAID, "contradicted"),
    ("refused", SETTLED, "ended", BY_CODE | WAS_PAID, "returned"),
    ("refused", SETTLED, "ended", FOR_NOW | WAS_PAID, "returned"),
    ("refused", SETTLED, "ended", BY_CODE | WAS_PAID | TWICE, "contradicted"),
    # It has returned it.
    ("returned", RETURNED, "ended", {}, "nothing"),
    ("refused", RETURNED, "ended", {}, "nothing"),
    ("settled", RETURNED, "ended", {}, "nothing"),
    ("settled", RETURNED, "ended", ONLY_REFUSED, "settled_after_refusal"),
    ("settled", RETURNED | SETTLED, "ended", ONLY_REFUSED, "nothing"),
]


@pytest.mark.parametrize(
    ("status", "states", "place", "more", "step"), RULES, ids=[str(n) for n in range(len(RULES))]
)
def test_a_report_changes_what_its_rule_says(
    *,
    status: ReportedStatus,
    states: set[str],
    place: Place,
    more: dict[str, Any],
    step: ReportStep,
) -> None:
    assert decide(Reported(status=status, states=states, place=place, **more)) == step
