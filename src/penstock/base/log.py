"""Structured log lines on standard error. Events are `noun.past_verb`; values are keys.

Redaction is an allow-list: a key that is neither named in LOGGABLE nor ends in a safe unit is
printed as `[redacted]`, so that a missing key is noticed and no secret is logged.
"""

import logging
import re
import sys
import traceback
from collections.abc import Collection, Iterator
from contextlib import suppress
from contextvars import ContextVar
from itertools import dropwhile
from pathlib import Path
from typing import Any, Literal, Protocol, TextIO, cast

import structlog
from structlog.typing import EventDict, Processor

from penstock.base.errors import PenstockError, text_of

REDACTED = "[redacted]"
MESSAGE_LENGTH_MAX = 200  # A line on a wide screen.
CAUSES_MAX = 5  # A chain of exceptions may have a cycle.
FRAMES_MAX = 30  # The innermost ones: recursion has a thousand.
# In a message: an e-mail address, the account in a URL, a number as long as a card's or an
# account's with its separators, and a word as long as a token.
_SECRET = re.compile(
    r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+|(?<=://)[^\s/@]+(?=@)|\d(?:[ -]?\d){8,}|[\w+/=-]{24,}"
)

LOGGABLE = frozenset(
    {
        "adapter", "address", "app", "attempt", "change", "channel", "code", "data_dir",
        "declared", "enabled", "error", "event", "exception", "extra", "field", "folder", "group",
        "handler", "host", "lane", "level",
        "message", "method", "metric", "migration", "name", "offset", "outcome", "owner",
        "partition", "pid", "port", "reason", "route", "setting", "signal", "state", "status",
        "stored", "task", "timestamp", "topic", "try", "url", "version", "where", "worker",
    }
)  # fmt: skip

# An id, an amount or an instant identifies no person and gives no access.
LOGGABLE_ENDINGS = ("_id", "_count", "_seconds", "_ms", "_bytes", "_at", "_per_second")


# The current request; faster than structlog's context variables.
request_id: ContextVar[str | None] = ContextVar("request_id", default=None)


class Logger(Protocol):
    """The logger methods that Penstock uses."""

    def debug(self, event: str, **values: Any) -> Any: ...
    def info(self, event: str, **values: Any) -> Any: ...
    def warning(self, event: str, **values: Any) -> Any: ...
    def error(self, event: str, **values: Any) -> Any: ...
    def bind(self, **values: Any) -> "Logger": ...


def configure(
    level: str = "info",
    format: Literal["console", "json"] = "console",  # noqa: A002  The setting's own word.
    *,
    file: TextIO | None = None,
    loggable: Collection[str] = LOGGABLE,
) -> None:
    """Set up logging for this process; call once at start, a repeat replaces the first."""
    target = file or sys.stderr
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            _add_request_id,
            _redact(loggable),
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _renderer(format, colors=target.isatty()),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_number(level)),
        logger_factory=lambda *_: _Lines(target),
        cache_logger_on_first_use=False,
    )


class _Lines(structlog.PrintLogger):
    """Writes lines to a file. A line that cannot be written is lost: the work must go on."""

    def msg(self, message: str) -> None:
        with suppress(OSError):
            super().msg(message)

    debug = info = warning = error = msg


def get_logger(**values: Any) -> Logger:
    """Return a logger that adds `values` to each of its lines.

    If the application has not configured structlog, lines go to standard error.
    """
    if not structlog.is_configured():
        configure()
    return cast("Logger", structlog.get_logger(**values))


def logs_debug(log: Logger) -> bool:
    """Return whether lines at debug are written; true for a logger that does not say."""
    is_enabled_for = getattr(log.bind(), "is_enabled_for", None)
    return is_enabled_for is None or is_enabled_for(logging.DEBUG)


def describe(failure: BaseException) -> dict[str, str]:
    """Return what may be logged of an exception: class, place, and the message of a PenstockError.

    Other messages are left out: drivers and handlers put row values and addresses into them.
    """
    shown = {"error": type(failure).__qualname__, "where": _place(failure)}
    if isinstance(failure, PenstockError):
        shown["reason"] = text_of(failure)
    if isinstance(failure, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", failure)
        shown["reason"] = ", ".join(type(inner).__qualname__ for inner in group.exceptions)
    return shown


def traceback_of(failure: BaseException) -> str:
    """Return the traceback of an exception and of its causes, without their messages."""
    return "\n".join(_trace_lines(failure))


def _trace_lines(failure: BaseException) -> Iterator[str]:
    cause: BaseException | None = failure
    for depth in range(CAUSES_MAX):
        if cause is None:
            return
        yield f"{'caused by ' if depth else ''}{type(cause).__qualname__}"
        frames = traceback.extract_tb(cause.__traceback__)
        # The frames that lead from the worker to the handler are the same in every traceback.
        shown = list(dropwhile(lambda frame: frame.filename.startswith(_PACKAGE), frames)) or frames
        yield from "".join(traceback.format_list(shown[-FRAMES_MAX:])).splitlines()
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)


_PACKAGE = str(Path(__file__).parents[1])


def first_line(failure: BaseException) -> str:
    """Return the first line of an exception's message, redacted and cut to a log line's length.

    The redaction covers the usual shapes of secrets; it cannot know what else a message contains.
    """
    lines = text_of(failure).splitlines()
    return _SECRET.sub(REDACTED, lines[0])[:MESSAGE_LENGTH_MAX] if lines else ""


def _place(failure: BaseException) -> str:
    trace = failure.__traceback__
    if trace is None:
        return "unknown"
    while trace.tb_next is not None:
        trace = trace.tb_next
    code = trace.tb_frame.f_code
    return f"{Path(code.co_filename).name}:{trace.tb_lineno} {code.co_name}"


def _add_request_id(_logger: object, _method: str, line: EventDict) -> EventDict:
    if (known := request_id.get()) is not None:
        line["request_id"] = known
    return line


def _redact(loggable: Collection[str]) -> Processor:
    """Return a processor that redacts all but known keys."""
    known = frozenset(loggable) | {"event"}

    def redact(_logger: object, _method: str, line: EventDict) -> EventDict:
        return {
            key: value if key in known or key.endswith(LOGGABLE_ENDINGS) else REDACTED
            for key, value in line.items()
        }

    return redact


def _renderer(format: str, *, colors: bool) -> Processor:  # noqa: A002  The setting's own word.
    if format == "json":
        return structlog.processors.JSONRenderer()
    return structlog.dev.ConsoleRenderer(colors=colors)


def _number(level: str) -> int:
    return logging.getLevelNamesMapping()[level.upper()]
