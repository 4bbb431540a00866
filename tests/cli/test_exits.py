"""Every error ends in one line and one of the documented codes."""

from typing import ClassVar, get_args

import pytest

from penstock.base.errors import (
    BadSetting,
    Conflict,
    ExitCode,
    InvalidInput,
    MissingExtra,
    PenstockError,
)
from penstock.cli.errors import BadApp
from penstock.console.exits import Exit, exit_code, innermost, message
from penstock.kernel.errors import StateConflict, UnknownLane
from penstock.postgres.errors import BadMigration, DatabaseAway


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (InvalidInput("due_at", "is odd"), Exit.BAD_INPUT),
        (BadSetting("PENSTOCK_PORT", "is odd"), Exit.BAD_INPUT),
        (BadApp("a:b", "is odd"), Exit.BAD_INPUT),
        (UnknownLane("a"), Exit.BAD_INPUT),
        (StateConflict(1, "done", "cancelled"), Exit.CONFLICT),
        (DatabaseAway("gone"), Exit.UNAVAILABLE),
        (MissingExtra("api", "the API"), Exit.UNAVAILABLE),
        (BadMigration("a", "b", "c"), Exit.FAILED),
        (ZeroDivisionError(), Exit.FAILED),
    ],
)
def test_an_error_has_its_exit_code(failure: Exception, code: Exit) -> None:
    assert exit_code(failure) == code


class InvoiceConflict(Conflict):
    """An error of another package that takes the exit code of its family."""


class TermsRejected(PenstockError):
    """An error of another package with an exit code of its own choice."""

    exit_code: ClassVar[ExitCode] = 2


@pytest.mark.parametrize(
    ("failure", "code"),
    [(InvoiceConflict(), Exit.CONFLICT), (TermsRejected(), Exit.BAD_INPUT)],
)
def test_an_error_of_another_package_ends_a_command_as_its_class_says(
    failure: PenstockError, code: Exit
) -> None:
    """A domain of a third party must not need a change of the command line."""
    assert exit_code(failure) == code


@pytest.mark.parametrize("code", get_args(ExitCode))
def test_an_exit_code_of_an_error_is_a_documented_one(code: int) -> None:
    assert Exit(code) not in {Exit.OK, Exit.INTERRUPTED}


def test_a_message_is_one_line() -> None:
    assert message(DatabaseAway("first\nsecond")) == "the database is unavailable: first second"


def test_an_unexpected_error_is_reported_without_its_message() -> None:
    """The message may contain anything, such as a password in an address."""
    printed = message(ValueError("postgresql://me:secret@host"))

    assert "ValueError" in printed
    assert "secret" not in printed


def test_the_error_inside_a_task_group_is_reported() -> None:
    inner = DatabaseAway("gone")
    group = ExceptionGroup("outer", [ExceptionGroup("inner", [inner])])

    assert innermost(group) is inner
