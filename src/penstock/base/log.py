"""Structured log lines on standard error. Events are `noun.past_verb`; values are keys.

Redaction is an allow-list: a key that is neither named in LOGGABLE nor ends in a safe unit is
printed as `[redacted]`, so that a missing key is noticed and no secret is logged.
"""

import logging
import sys
from collections.abc import Collection
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Literal, Protocol, TextIO, cast

import structlog
from structlog.typing import EventDict, Processor

from penstock.base.errors import PenstockError

REDACTED = "[redacted]"

LOGGABLE = frozenset(
    {
        "address", "app", "attempt", "channel", "code", "data_dir", "enabled", "error",
        "event", "extra", "folder", "group", "handler", "host", "lane", "level", "method", "metric",
        "migration", "name", "offset", "outcome", "owner", "partition", "pid", "port", "reason",
        "route", "setting", "signal", "state", "status", "task", "timestamp", "topic", "try", "url",
        "version", "where", "worker",
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
        logger_factory=structlog.PrintLoggerFactory(target),
        cache_logger_on_first_use=False,
    )


def get_logger(**values: Any) -> Logger:
    """Return a logger that adds `values` to each of its lines.

    If the application has not configured structlog, lines go to standard error.
    """
    if not structlog.is_configured():
        configure()
    return cast("Logger", structlog.get_logger(**values))


def describe(failure: BaseException) -> dict[str, str]:
    """Return what may be logged of an exception: class, place, and the message of a PenstockError.

    Other messages are left out: drivers and handlers put row values and addresses into them.
    """
    shown = {"error": type(failure).__qualname__, "where": _place(failure)}
    if isinstance(failure, PenstockError):
        shown["reason"] = str(failure)
    if isinstance(failure, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", failure)
        shown["reason"] = ", ".join(type(inner).__qualname__ for inner in group.exceptions)
    return shown


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
