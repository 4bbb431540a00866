"""What a log line may and may not contain."""

import io
import json
import os
from collections.abc import Generator

import pytest
import structlog

from penstock.base.log import REDACTED, configure, describe, get_logger
from penstock.kernel.errors import UnknownLane


@pytest.fixture
def lines() -> Generator[io.StringIO]:
    target = io.StringIO()
    configure("info", "json", file=target)
    yield target
    structlog.reset_defaults()


def test_a_known_key_is_logged(lines: io.StringIO) -> None:
    get_logger(lane="mail").info("batch.claimed", item_count=3, took_ms=1.5)

    line = json.loads(lines.getvalue())
    assert line["event"] == "batch.claimed"
    assert (line["lane"], line["item_count"], line["took_ms"]) == ("mail", 3, 1.5)
    assert line["level"] == "info"


@pytest.mark.parametrize("key", ["payload", "password", "dsn", "to", "card", "whatever"])
def test_an_unknown_key_is_redacted(lines: io.StringIO, key: str) -> None:
    """A deny-list forgets the next secret; an allow-list cannot."""
    get_logger().info("mail.sent", **{key: "hunter2"})

    line = json.loads(lines.getvalue())
    assert line[key] == REDACTED


def test_a_key_bound_in_the_context_is_redacted_too(lines: io.StringIO) -> None:
    with structlog.contextvars.bound_contextvars(payload="hunter2"):
        get_logger().info("mail.sent")

    assert "hunter2" not in lines.getvalue()


def test_a_line_below_the_level_is_dropped(lines: io.StringIO) -> None:
    get_logger().debug("poll.finished")

    assert lines.getvalue() == ""


def test_a_line_that_cannot_be_written_is_lost_and_raises_nothing() -> None:
    """The reader of a pipe has ended, or the disk is full: the work that logs must go on."""
    reader, writer = os.pipe()
    os.close(reader)
    pipe = io.TextIOWrapper(io.FileIO(writer, "w"), write_through=True)
    configure("info", "json", file=pipe)

    get_logger().info("batch.claimed", item_count=3)

    structlog.reset_defaults()
    with pytest.raises(BrokenPipeError):
        pipe.write("the line")
    pipe.close()


def test_the_message_of_a_foreign_exception_is_not_described() -> None:
    """Drivers quote row values in their messages."""
    told = describe(ValueError("Key (card)=(4111) already exists"))

    assert "4111" not in str(told)
    assert told["error"] == "ValueError"


def test_the_message_of_a_penstock_error_is_described() -> None:
    assert describe(UnknownLane("mial"))["reason"] == "no lane is named 'mial'"


def test_a_description_includes_the_place() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        print(1 / 0)

    assert describe(caught.value)["where"].startswith("test_log.py:")
