"""What a handler raises is in the log with its traceback, and does not fill it."""

import io
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from penstock import Item, NewItem, Penstock, Retry
from penstock.base.log import configure, first_line, get_logger
from penstock.kernel.failures import REPEAT_AFTER, FailureLog
from penstock.kernel.kind import Kind
from penstock.testing import FakeClock, run_due

SECRET = "4111 1111 1111 1111"


async def pay(item: Item[Any]) -> None: ...


@pytest.fixture(autouse=True)
def debug() -> Iterator[None]:
    """Write lines of all levels, and then what the other tests expect."""
    configure("debug")
    yield
    structlog.reset_defaults()


KIND = Kind(lane="payments", payload_type=object, handle=pay)


def charge(amount: int) -> None:
    try:
        _ = {}[amount]
    except KeyError as missing:
        raise ValueError(f"no card {SECRET}\nfor {amount}") from missing


def failure_of(amount: int = 1) -> Exception:
    try:
        charge(amount)
    except ValueError as failure:
        return failure
    raise AssertionError


async def lines_of(dsn: str, handler: Any) -> list[Any]:
    """Run three items through a handler and return what it logged."""
    app = Penstock(dsn, domains=())
    app.handler("payments")(handler)
    async with app:
        await app.enqueue_many("payments", [NewItem(payload=n) for n in range(3)])
        with capture_logs() as lines:
            await run_due(app, FakeClock(datetime.now(UTC) + timedelta(seconds=1)))
    return [line for line in lines if line["event"] == "handler.failed"]


async def test_what_a_handler_raises_is_logged_with_its_traceback(dsn: str) -> None:
    """A new user saw neither message nor traceback, at no level."""

    async def take(item: Item[int]) -> None:
        charge(item.payload)

    lines = await lines_of(dsn, take)

    warnings = [line for line in lines if line["log_level"] == "warning"]
    assert [line["log_level"] for line in lines].count("debug") == 3
    (warning,) = warnings
    assert (warning["lane"], warning["error"]) == ("payments", "ValueError")
    assert warning["handler"].endswith("take")
    assert "charge(item.payload)" in warning["exception"]
    assert "caused by KeyError" in warning["exception"]


async def leave(item: Item[int]) -> None:
    sys.exit(item.payload)


async def leave_with_all(items: list[Item[int]]) -> None:
    sys.exit(len(items))


@pytest.mark.parametrize("handler", [leave, leave_with_all])
async def test_a_handler_that_exits_costs_an_attempt_and_is_logged(dsn: str, handler: Any) -> None:
    """It ended the whole worker, without a line."""
    lines = await lines_of(dsn, handler)

    (warning,) = [line for line in lines if line["log_level"] == "warning"]
    assert (warning["lane"], warning["error"]) == ("payments", "SystemExit")


async def test_a_batch_and_a_plain_function_are_logged_too(dsn: str) -> None:
    def take(items: list[Item[int]]) -> None:
        charge(items[0].payload)

    lines = await lines_of(dsn, take)

    assert {line["log_level"] for line in lines} == {"warning", "debug"}
    assert "charge(items[0].payload)" in lines[0]["exception"]


def test_a_message_is_logged_at_debug_only_and_as_one_line() -> None:
    """Drivers and handlers put values into their messages."""
    with capture_logs() as lines:
        FailureLog(get_logger(), KIND).add(failure_of(), 1)

    warning, debug = lines
    assert SECRET not in str(warning)
    assert debug["message"] == "no card [redacted]"


def test_a_failure_is_repeated_at_warning_after_a_minute() -> None:
    minute = REPEAT_AFTER.total_seconds()
    instants = iter((0.0, 1.0, minute, minute))
    failures = FailureLog(get_logger(), KIND, now=lambda: next(instants))

    with capture_logs() as lines:
        for _ in range(3):
            failures.add(failure_of(), 1)
        failures.add(KeyError("other"), 1)

    warned = [line["error"] for line in lines if line["log_level"] == "warning"]
    assert warned == ["ValueError", "ValueError", "KeyError"]


def test_the_traceback_is_printed_as_lines_and_not_redacted() -> None:
    out = io.StringIO()
    configure(file=out)

    FailureLog(get_logger(), KIND).add(failure_of(), 1)

    assert "\n  File " in out.getvalue()
    assert "[redacted]" not in out.getvalue()


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        pytest.param({}, None, id="class"),
        pytest.param({"error_detail": "message"}, ": no card [redacted]", id="message"),
    ],
)
async def test_a_lane_may_record_the_message_of_an_exception(
    dsn: str, policy: dict[str, Any], reason: str | None
) -> None:
    """By default an attempt has only the class and the place."""
    app = Penstock(dsn, domains=())

    @app.handler("payments", **policy)
    async def take(item: Item[int]) -> None:
        charge(item.payload)

    async with app:
        await app.enqueue("payments", 1)
        clock = FakeClock(datetime.now(UTC) + timedelta(seconds=1))
        (attempted,) = await run_due(app, clock)

    assert isinstance(attempted.outcome, Retry)
    place, found, message = attempted.outcome.reason.partition(" charge")
    assert place.startswith("ValueError in test_failures.py:")
    assert (found, message) == (" charge", reason or "")


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("no user jane.doe@example.com here", "no user [redacted] here"),
        ("cannot reach https://me:pass@host/a", "cannot reach https://[redacted]@host/a"),
        ("token sk_live_51H8abcdefghijklmnop is bad", "token [redacted] is bad"),
        ("IBAN DE 3704 0044 0532 0130 00", "IBAN DE [redacted]"),
        ("item 12345 has 3 parts\nand more", "item 12345 has 3 parts"),
        ("x " * 200, ("x " * 200)[:200]),
        ("", ""),
    ],
)
def test_a_message_is_redacted_and_cut_to_one_line(message: str, shown: str) -> None:
    assert first_line(ValueError(message)) == shown
