"""Every error ends in one line and one of the documented codes."""

import pytest

from penstock.base import errors
from penstock.console.exits import Exit, exit_code, innermost, message


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (errors.InvalidInput("due_at", "is odd"), Exit.BAD_INPUT),
        (errors.BadSetting("PENSTOCK_PORT", "is odd"), Exit.BAD_INPUT),
        (errors.BadApp("a:b", "is odd"), Exit.BAD_INPUT),
        (errors.UnknownLane("a"), Exit.BAD_INPUT),
        (errors.StateConflict(1, "done", "cancelled"), Exit.CONFLICT),
        (errors.DatabaseAway("gone"), Exit.UNAVAILABLE),
        (errors.MissingExtra("api", "the API"), Exit.UNAVAILABLE),
        (errors.BadMigration("a", "b", "c"), Exit.FAILED),
        (ZeroDivisionError(), Exit.FAILED),
    ],
)
def test_an_error_has_its_exit_code(failure: Exception, code: Exit) -> None:
    assert exit_code(failure) == code


def test_a_message_is_one_line() -> None:
    assert (
        message(errors.DatabaseAway("first\nsecond")) == "the database is unavailable: first second"
    )


def test_an_unexpected_error_is_reported_without_its_message() -> None:
    """The message may contain anything, such as a password in an address."""
    printed = message(ValueError("postgresql://me:secret@host"))

    assert "ValueError" in printed
    assert "secret" not in printed


def test_the_error_inside_a_task_group_is_reported() -> None:
    inner = errors.DatabaseAway("gone")
    group = ExceptionGroup("outer", [ExceptionGroup("inner", [inner])])

    assert innermost(group) is inner
