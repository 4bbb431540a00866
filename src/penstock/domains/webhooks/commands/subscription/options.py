"""The options that `create` and `set` have in common, and what they mean to the domain."""

from collections.abc import Callable
from typing import Any, TypedDict, TypeVar

import click

from penstock.base.errors import InvalidInput
from penstock.console.output import duration
from penstock.console.values import parse_duration
from penstock.domains.webhooks.commands.subscription.typed_options import (
    NONE,
    parse_headers,
    parse_rate,
    parse_schedule,
    read_text,
    utf8,
)
from penstock.domains.webhooks.subscription import CONCURRENCY, RATE_LIMIT, TIMEOUT

Verb = TypeVar("Verb", bound=Callable[..., Any])

OPTIONS = (
    click.option(
        "--filter",
        "filter_",
        metavar="JSON|@FILE",
        callback=utf8,
        help="Conditions on the data, as JSON or in a file.",
    ),
    click.option(
        "--ordering-key",
        metavar="PATH",
        callback=utf8,
        help="Field of the data, such as order.id; events with the same value are sent in order.",
    ),
    click.option("--description", callback=utf8, help="Description for people."),
    click.option(
        "--rate-limit",
        metavar="N",
        help=f"Requests per second, or none for no limit; a new subscription has {RATE_LIMIT:g}.",
    ),
    click.option(
        "--concurrency",
        type=click.IntRange(1, 10_000),
        help=f"Requests at once; a new subscription has {CONCURRENCY}.",
    ),
    click.option(
        "--timeout",
        metavar="DURATION",
        help=f"For a whole request, 100ms to 60s; a new subscription has {duration(TIMEOUT)}.",
    ),
    click.option(
        "--retry-schedule",
        metavar="DURATIONS|standard",
        help="Delays before retries, such as 5s,1m,1h; standard: 10 attempts over 3 days, as"
        " Standard Webhooks advises; once: no retries; none: as the lane says, which a new"
        " subscription has: 5 attempts within 15 s.",
    ),
    click.option(
        "--header",
        "headers",
        multiple=True,
        metavar="'NAME: VALUE'",
        callback=utf8,
        help="Extra header, stored encrypted; may be given again.",
    ),
)


class Typed(TypedDict):
    """What was typed of the common options; None was not."""

    filter_: str | None
    ordering_key: str | None
    description: str | None
    rate_limit: str | None
    concurrency: int | None
    timeout: str | None
    retry_schedule: str | None
    headers: tuple[str, ...]


def common_options(verb: Verb) -> Verb:
    """Give a verb all of them, in this order."""
    for option in reversed(OPTIONS):
        verb = option(verb)
    return verb


def read_changes(typed: Typed) -> dict[str, Any]:
    """Return the fields that were given, as the domain takes them; it checks the rest."""
    changes: dict[str, Any] = {}
    for name, value in typed.items():
        match name, value:
            case _, None | ():
                pass
            case "filter_", str(word):
                changes["filter"] = _filter(word)
            case "ordering_key", str(word):
                changes[name] = None if word.lower() == NONE else word
            case "rate_limit", str(word):
                changes[name] = parse_rate(word, field="--rate-limit")
            case "timeout", str(word):
                changes[name] = parse_duration(word, field="--timeout")
            case "retry_schedule", str(word):
                changes[name] = parse_schedule(word)
            case "headers", _:
                changes[name] = parse_headers(typed["headers"])
            case _:
                changes[name] = value
    return changes


def _filter(word: str) -> str | None:
    try:
        text = read_text(word, field="--filter").decode().strip()
    except UnicodeDecodeError:
        raise InvalidInput("--filter", "is not UTF-8") from None
    return None if text.lower() in {NONE, "null"} else text
