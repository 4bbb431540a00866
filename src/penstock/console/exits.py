"""How the process ends: one line on standard error and one of these codes.

0 done · 1 failed · 2 bad input, setting or name, nothing written · 3 conflict with what is stored
· 4 a dependency is unavailable or in use · 130 interrupted.
"""

import sys
from collections.abc import Callable
from enum import IntEnum
from typing import NoReturn

import click

from penstock.base.errors import (
    BadApp,
    BadSetting,
    Conflict,
    InvalidInput,
    NotFound,
    PenstockError,
    Unavailable,
)
from penstock.base.log import describe


class Exit(IntEnum):
    """The codes of the table above."""

    OK = 0
    FAILED = 1
    BAD_INPUT = 2
    CONFLICT = 3
    UNAVAILABLE = 4
    INTERRUPTED = 130


def run(command: Callable[[], object], *, is_debug: Callable[[], bool]) -> NoReturn:
    """Run a command and leave the process; `is_debug` decides whether a traceback may be seen."""
    try:
        command()
    except click.exceptions.NoArgsIsHelpError as asked:
        asked.show()
        _leave(Exit.BAD_INPUT)
    except click.ClickException as refused:
        _leave(refused.exit_code, _usage(refused))
    except (click.Abort, KeyboardInterrupt):
        _leave(Exit.INTERRUPTED, "interrupted")
    except Exception as failure:
        if is_debug():
            raise
        cause = innermost(failure)
        _leave(exit_code(cause), message(cause))
    _leave(Exit.OK)


def exit_code(failure: BaseException) -> Exit:
    """Return the code for an error; a name that does not exist is bad input."""
    match failure:
        case InvalidInput() | BadSetting() | BadApp() | NotFound():
            return Exit.BAD_INPUT
        case Conflict():
            return Exit.CONFLICT
        case Unavailable():
            return Exit.UNAVAILABLE
        case _:
            return Exit.FAILED


def message(failure: BaseException) -> str:
    """Return one line for a person; what we did not expect says where it happened."""
    if isinstance(failure, PenstockError):
        told = ": ".join([str(failure), *getattr(failure, "__notes__", ())])
        return " ".join(told.split())
    told = describe(failure)
    return f"unexpected {told['error']} in {told['where']} (PENSTOCK_LOG_LEVEL=debug shows more)"


def innermost(failure: BaseException) -> BaseException:
    """Return the failure that a task group wraps; of several, the first."""
    while isinstance(failure, BaseExceptionGroup):
        failure = failure.exceptions[0]  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
    return failure  # pyright: ignore[reportUnknownVariableType]


def _usage(refused: click.ClickException) -> str:
    """Return click's complaint in one line, with the place where help is."""
    text = " ".join(refused.format_message().split())
    context = refused.ctx if isinstance(refused, click.UsageError) else None
    return text if context is None else f"{text} (see: {context.command_path} --help)"


def _leave(code: int, line: str | None = None) -> NoReturn:
    if line is not None:
        click.echo(f"penstock: {line}", err=True)
    sys.exit(int(code))
