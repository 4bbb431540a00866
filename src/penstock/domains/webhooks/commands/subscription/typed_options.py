"""What the verbs about webhooks share: options, values as they are typed, errors in those words.

The domain names fields as its REST API does; on the command line they are options.
"""

import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from math import isfinite
from pathlib import Path
from typing import TypeVar

import click

from penstock.base.errors import InvalidInput
from penstock.console.values import parse_duration
from penstock.domains.webhooks.event import DEFAULT_TENANT
from penstock.domains.webhooks.subscription import STANDARD_SCHEDULE

T = TypeVar("T", str, "str | None", tuple[str, ...])

NONE = "none"  # Takes something away.
TEXT_BYTES_MAX = 1024 * 1024  # Of a filter or a secret from a file: far more than is accepted.

_TYPED = {
    "Idempotency-Key": "--key",
    "concurrency": "--concurrency",
    "data": "JSON",
    "description": "--description",
    "event_types": "--type",
    "filter": "--filter",
    "from": "--from",
    "headers": "--header",
    "id": "--id",
    "ordering_key": "--ordering-key",
    "overlap_seconds": "--overlap",
    "rate_limit": "--rate-limit",
    "retry_schedule_seconds": "--retry-schedule",
    "secret": "--secret",
    "source": "--source",
    "tenant": "--tenant",
    "timeout_seconds": "--timeout",
    "type": "TYPE",
    "until": "--until",
    "url": "--url",
}
_NAME = re.compile(r"[\w-]+")


def utf8(context: click.Context, parameter: click.Parameter, value: T) -> T:
    """Refuse bytes that are no text, which reach us as characters that no database takes."""
    try:
        "".join(value or "").encode()
    except UnicodeEncodeError:
        raise click.BadParameter("is not UTF-8", context, parameter) from None
    return value


tenant_option = click.option(
    "--tenant",
    default=DEFAULT_TENANT,
    show_default=True,
    callback=utf8,
    help="Tenant whose events are meant.",
)
subscription_argument = click.argument("subscription_id", metavar="ID", callback=utf8)


@contextmanager
def in_typed_words(**typed: str) -> Generator[None]:
    """Name what is refused as it was typed; `typed` adds to what is known."""
    try:
        yield
    except InvalidInput as refused:
        found = _NAME.match(refused.field)
        name = found.group() if found else ""
        word = (_TYPED | typed).get(name, name)
        raise InvalidInput(word + refused.field[len(name) :], refused.reason) from refused


def parse_types(words: Sequence[str]) -> list[str]:
    """Read event types, given one by one or with commas between them."""
    return [each for word in words for each in word.replace(",", " ").split()]


def parse_rate(text: str, *, field: str) -> float | None:
    """Read a number per second, or `none`; the range is the domain's part."""
    if text.lower() == NONE:
        return None
    try:
        rate = float(text)
    except ValueError:
        raise InvalidInput(field, f"{text!r:.60} is not a number per second (or none)") from None
    if not isfinite(rate):  # JSON has no such numbers, and would make them none.
        raise InvalidInput(field, f"{text!r:.60} is out of range")
    return rate


def parse_schedule(text: str) -> list[timedelta] | None:
    """Read delays with commas between them, or a word.

    `standard` is the schedule of Standard Webhooks, `none` is as the lane says, `once` is no
    repeat.
    """
    words = {NONE: None, "once": [], "standard": list(STANDARD_SCHEDULE)}
    if text.lower() in words:
        return words[text.lower()]
    return [parse_duration(part, field="--retry-schedule") for part in parse_types([text])]


def parse_headers(lines: Sequence[str]) -> dict[str, str] | None:
    """Read `Name: value` lines; a single `none` is no headers."""
    if [line.lower() for line in lines] == [NONE]:
        return None
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon:
            # The line itself is not shown: it may be a password without its name.
            raise InvalidInput("--header", "must look like 'Name: value'")
        if name.strip().lower() in map(str.lower, headers):
            raise InvalidInput(f"--header {name.strip()}", "is given twice")
        headers[name.strip()] = value.strip()
    return headers


def read_text(word: str, *, field: str, bytes_max: int = TEXT_BYTES_MAX) -> bytes:
    """Return what was typed, or what `@FILE` holds, or for `-` what comes on standard input."""
    if word != "-" and not word.startswith("@"):
        return word.encode()
    place = "-" if word == "-" else str(Path(word[1:]))
    try:
        with click.open_file(place, "rb") as source:
            text: bytes = source.read(bytes_max + 1)
    except OSError as refused:
        reason = refused.strerror or str(refused)
        raise InvalidInput(field, f"cannot read {word.removeprefix('@')}: {reason}") from refused
    if len(text) > bytes_max:
        raise InvalidInput(field, f"is over {bytes_max} bytes")
    return text


def read_secret_word(word: str | None) -> str | None:
    """Return a secret as it was typed, or for `-` what comes on standard input."""
    if word != "-":
        return word
    try:
        return read_text(word, field="--secret").decode().strip()
    except UnicodeDecodeError:
        raise InvalidInput("--secret", "is not UTF-8") from None
