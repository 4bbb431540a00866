"""How a command ends: an error is one line on standard error; the exit code is one of these.

0 done · 1 failed · 2 bad input, setting or name, nothing written · 3 conflict with what is stored
· 4 a dependency is unavailable or in use · 130 interrupted.
"""

import sys
from collections.abc import Callable
from enum import IntEnum
from typing import NoReturn

import click

from penstock.base.errors import PenstockError
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
    """Run a command and exit the process; with `is_debug()`, errors keep their traceback."""
    try:
        command()
    except click.exceptions.NoArgsIsHelpError as asked:
        asked.show()
        _exit(Exit.BAD_INPUT)
    except click.ClickException as refused:
        _exit(refused.exit_code, _usage(refused))
    except (click.Abort, KeyboardInterrupt):
        _exit(Exit.INTERRUPTED, "interrupted")
    except Exception as failure:
        if is_debug():
            raise
        cause = innermost(failure)
        _exit(exit_code(cause), message(cause))
    _exit(Exit.OK)


def exit_code(failure: BaseException) -> int:
    """Return the code that the class of an error carries, and FAILED for any other exception."""
    return failure.exit_code if isinstance(failure, PenstockError) else Exit.FAILED


def message(failure: BaseException) -> str:
    """Return an error as one line; an unexpected one with the place where it was raised."""
    if isinstance(failure, PenstockError):
        text = ": ".join([str(failure), *getattr(failure, "__notes__", ())])
        return " ".join(text.split())
    described = describe(failure)
    place = f"{described['error']} in {described['where']}"
    return f"unexpected {place} (PENSTOCK_LOG_LEVEL=debug shows more)"


def innermost(failure: BaseException) -> BaseException:
    """Return the failure that a task group wraps; of several, the first."""
    while isinstance(failure, BaseExceptionGroup):
        failure = failure.exceptions[0]  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
    return failure  # pyright: ignore[reportUnknownVariableType]


def _usage(refused: click.ClickException) -> str:
    """Return click's message in one line, with the command that prints help."""
    text = " ".join(refused.format_message().split())
    context = refused.ctx if isinstance(refused, click.UsageError) else None
    return text if context is None else f"{text} (see: {context.command_path} --help)"


def _exit(code: int, line: str | None = None) -> NoReturn:
    if line is not None:
        click.echo(f"penstock: {line}", err=True)
    sys.exit(int(code))
