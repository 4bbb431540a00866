"""Every reply gets the class that was decided for it before the table was written."""

import csv
from collections import Counter
from pathlib import Path
from typing import cast, get_args

import pytest

from penstock.domains.mail.classify import (
    Class,
    ReplyRow,
    classify,
    classify_failure,
    find_row,
    rows,
)
from penstock.domains.mail.reply import RelayReply, SmtpPhase

HERE = Path(__file__).parent
PHASES = cast("tuple[SmtpPhase, ...]", get_args(SmtpPhase))
# Of these the mail itself is the subject.
TRANSACTION: tuple[SmtpPhase, ...] = ("mail", "rcpt", "data", "dot")
# The IANA registry of SMTP enhanced status codes: subject, and the details registered in it.
REGISTRY = {
    "0": (0,),
    "1": range(11),
    "2": range(5),
    "3": range(7),
    "4": range(8),
    "5": range(7),
    "6": range(11),
    "7": range(31),
}


def read_cases() -> list[dict[str, str]]:
    with (HERE / "cases.csv").open(newline="") as lines:
        return list(csv.DictReader(lines))


CASES = read_cases()


def name_case(case: dict[str, str]) -> str:
    keys = ("provider", "phase", "code", "enhanced", "hint")
    return " ".join(case[key] for key in keys if case[key])


@pytest.mark.parametrize("case", CASES, ids=name_case)
def test_a_known_reply_has_its_class(case: dict[str, str]) -> None:
    phase = cast("SmtpPhase", case["phase"])

    if case["code"] == "-":
        is_unknown = case["hint"] == "unknown"
        found = classify_failure(phase, case["hint"], is_unknown=is_unknown)
    else:
        found = classify(
            reply(phase, int(case["code"]), case["enhanced"] or None, text=case["hint"])
        )

    assert found == case["class"]


def test_at_least_300_cases_name_their_source_and_none_is_there_twice() -> None:
    names = Counter(name_case(case) for case in CASES)

    assert len([case for case in CASES if case["code"] != "-"]) >= 300
    assert all(case["source"] for case in CASES)
    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.parametrize("digit", [4, 5])
def test_every_registered_enhanced_code_has_a_row_of_its_own(digit: int) -> None:
    listed = {pattern for row in rows() if not row.hint for pattern in row.enhanced}
    registered = {
        f"{digit}.{subject}.{detail}" for subject, details in REGISTRY.items() for detail in details
    }

    assert registered - listed == set()


@pytest.mark.parametrize("phase", PHASES)
def test_a_code_without_a_row_falls_back_by_phase_and_first_digit(phase: SmtpPhase) -> None:
    expected = {
        2: "done",
        4: "transient" if phase in TRANSACTION else "relay_fault",
        5: "permanent" if phase in TRANSACTION else "relay_fault",
    }
    if phase == "quit":
        expected = dict.fromkeys(expected, "done")

    found = {
        digit: classify(reply(phase, digit * 100 + 99, f"{digit}.9.999", text="words nobody knows"))
        for digit in expected
    }

    assert found == expected


def test_every_possible_code_has_a_row_in_every_phase() -> None:
    """A server may reply anything, and a reply without a class would fail the attempt itself."""
    found = {
        find_row(phase, code, enhanced=None, text="").reply_class
        for phase in PHASES
        for code in range(200, 600)
    }

    assert found <= set(get_args(Class))


def test_a_reply_to_mail_or_to_the_session_never_suppresses_a_recipient() -> None:
    """It is about the sender or the relay."""
    suppressing = [row for row in rows() if row.reply_class == "permanent_suppress"]

    assert suppressing
    assert all(set(row.phases) <= {"rcpt", "data", "dot"} for row in suppressing)


def test_a_reply_after_the_message_suppresses_only_a_single_recipient() -> None:
    """With several recipients it does not say which of them does not exist."""
    refused = reply("dot", 550, "5.1.1")

    assert classify(refused) == "permanent_suppress"
    assert classify(refused, recipients=2) == "permanent"
    assert classify(reply("rcpt", 550, "5.1.1"), recipients=2) == "permanent_suppress"


def test_a_hint_matches_whole_words_only() -> None:
    assert classify(reply("rcpt", 554, "5.7.1", text="Your host is BLACK-LISTED")) == "permanent"
    assert classify(reply("rcpt", 554, "5.7.1", text="it is Blacklisted.")) == "relay_fault"
    assert classify(reply("rcpt", 550, None, text="the ptrace failed")) == "permanent"
    assert classify(reply("rcpt", 550, None, text="fix the PTR record")) == "relay_fault"


def test_rows_without_a_hint_never_contradict_each_other() -> None:
    """Only hints depend on the order of the file."""
    keys = Counter(
        (phase, code, enhanced)
        for row in rows()
        if not row.hint
        for phase in row.phases
        for code in row.codes
        for enhanced in row.enhanced
    )

    assert [key for key, count in keys.items() if count > 1] == []


def test_every_row_decides_something() -> None:
    """A row that can never decide is a rule that readers would believe."""
    assert [row for row in rows() if not decides(row)] == []


def decides(row: ReplyRow) -> bool:
    """Say whether a reply made from the row's first patterns finds this row."""
    phase = cast("SmtpPhase", row.phases[0].replace("*", "mail"))
    enhanced = row.enhanced[0].split("-")[0].replace("*", "999") or None
    if enhanced == "999":
        enhanced = None
    digit = enhanced[0] if enhanced else "2"
    code = {"*": f"{digit}99", "-": None}.get(row.codes[0], row.codes[0].replace("xx", "99"))
    text = row.hint.removesuffix("*")
    return find_row(phase, int(code) if code else None, enhanced=enhanced, text=text) is row


def reply(
    phase: SmtpPhase, code: int, enhanced: str | None = None, *, text: str = ""
) -> RelayReply:
    return RelayReply(phase=phase, code=code, enhanced=enhanced, text=text)
