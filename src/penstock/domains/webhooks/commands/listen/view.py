"""Verify a request and print it: for people in colours, for programs as JSON.

What clients send never reaches the terminal unescaped.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from rich.console import Console
from rich.highlighter import JSONHighlighter
from rich.text import Text

from penstock.domains.webhooks.commands.listen.received import Received
from penstock.domains.webhooks.secret import (
    PUBLIC_PREFIX,
    Ed25519PublicKey,
    Profile,
    Secret,
    read_public_key,
    read_secret,
)
from penstock.domains.webhooks.sign import verify

IDS_MAX = 10_000  # Messages whose attempts are counted; the oldest are dropped.
BODY_LENGTH_MAX = 4_000  # Characters printed for people: two screens.
HEADERS_MAX = 40
HEADER_LENGTH_MAX = 200
WORD_LENGTH_MAX = 128  # Of an id or a type, as in Penstock.

UNCHECKED = "unchecked"
VERIFIED = "verified"
# Headers of the transport, which say nothing about the event.
TRANSPORT_HEADERS = {"accept", "accept-encoding", "connection", "content-length", "host"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A request and the result of its check. `verdict` is a stable word, `detail` a sentence."""

    request: Received
    status: int
    verdict: str
    detail: str | None
    event_id: str | None
    event_type: str | None
    try_number: int


class _Event(msgspec.Struct):
    """Id and type in a body that Penstock sent."""

    id: str | None = None
    type: str | None = None


@dataclass(slots=True, kw_only=True)
class Verifier:
    """Verifies requests with any of its secrets, and counts the attempts of each message."""

    profile: Profile
    secrets: Sequence[Secret | Ed25519PublicKey]
    _tries: OrderedDict[str, int] = field(default_factory=OrderedDict[str, int])

    def check(self, request: Received, status: int) -> Checked:
        """Return a request that was answered with `status`, with the result of its check."""
        verdict, detail = self._verify(request)
        event = _event(request.body)
        headers = request.headers
        event_id = headers.get("webhook-id") or headers.get("svix-id") or event.id
        return Checked(
            request=request,
            status=status,
            verdict=verdict,
            detail=detail,
            event_id=event_id,
            event_type=event.type or headers.get("x-github-event"),
            try_number=self._count(event_id),
        )

    def _verify(self, request: Received) -> tuple[str, str | None]:
        if not self.secrets:
            return UNCHECKED, "no secret given"
        refused = verify(
            request.headers,
            request.body,
            profile=self.profile,
            secrets=self.secrets,
            now=request.received_at,
        )
        return (VERIFIED, None) if refused is None else (refused.word, refused.detail)

    def _count(self, event_id: str | None) -> int:
        if event_id is None:
            return 1
        number = self._tries[event_id] = self._tries.pop(event_id, 0) + 1
        if len(self._tries) > IDS_MAX:
            self._tries.popitem(last=False)
        return number


def read_key(text: str, profile: Profile) -> Secret | Ed25519PublicKey:
    """Parse a secret, or a public key where the profile has them; raises InvalidInput."""
    if text.startswith(PUBLIC_PREFIX) and profile in {"standard", "svix"}:
        return read_public_key(text)
    return read_secret(text, profile)


def as_record(checked: Checked) -> dict[str, Any]:
    """Return a request for programs, with its whole body: as JSON if it is JSON, else as text."""
    request = checked.request
    value = _json(request.body, indent=-1)
    return {
        "received_at": request.received_at,
        "verdict": checked.verdict,
        "detail": checked.detail,
        "id": checked.event_id,
        "type": checked.event_type,
        "try": checked.try_number,
        "method": request.method,
        "path": request.path,
        "status": checked.status,
        "headers": request.headers,
        "body": request.body.decode(errors="replace") if value is None else value,
    }


def as_text(checked: Checked, *, encoding: str) -> Text:
    """Return a request for people; only characters that `encoding` has."""

    def safe(text: str, length_max: int = WORD_LENGTH_MAX) -> str:
        return _shorten(_escape(text, encoding), length_max)

    request = checked.request
    shown = Text(f"{request.received_at:%H:%M:%S}.{request.received_at.microsecond // 1000:03}Z ")
    shown.append(*_verdict(checked))
    for word, style in (
        (checked.event_type, "bold"),
        (checked.event_id, "cyan"),
        (f"try {checked.try_number}" if checked.try_number > 1 else None, "yellow"),
    ):
        if word:
            shown.append(f"  {safe(word)}", style)
    shown.append(f"  {safe(request.method)} {safe(request.path)}", "dim")
    shown.append(f"  answered {checked.status}", "dim" if checked.status < 300 else "yellow")
    for name, value in _relevant(request.headers):
        shown.append(f"\n  {safe(name)}: ", "dim")
        shown.append(safe(value, HEADER_LENGTH_MAX), "dim")
    if request.body:
        shown.append("\n").append_text(_body(request.body, encoding))
    return shown.append("\n")


def show(checked: Checked, console: Console) -> None:
    """Print a request for people."""
    shown = as_text(checked, encoding=console.encoding)
    console.print(shown, soft_wrap=True, highlight=False, markup=False, emoji=False)


def _verdict(checked: Checked) -> tuple[str, str]:
    match checked.verdict:
        case "verified":
            return "verified", "bold green"
        case "unchecked":
            return f"not verified: {checked.detail}", "bold yellow"
        case _:
            return f"NOT VERIFIED ({checked.verdict}: {checked.detail})", "bold red"


def _event(body: bytes) -> _Event:
    try:
        return msgspec.json.decode(body, type=_Event)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _Event()


def _relevant(headers: Mapping[str, str]) -> list[tuple[str, str]]:
    return [pair for pair in headers.items() if pair[0] not in TRANSPORT_HEADERS][:HEADERS_MAX]


def _body(body: bytes, encoding: str) -> Text:
    """Return a body, indented if it is JSON; of a long one the beginning."""
    value = _json(body, indent=2)
    text = body.decode(errors="replace") if value is None else bytes(value).decode()
    lines = text[:BODY_LENGTH_MAX].split("\n")
    shown = Text("\n".join(f"  {_escape(line, encoding)}" for line in lines))
    if value is not None:
        JSONHighlighter().highlight(shown)
    left_out = len(text) - BODY_LENGTH_MAX
    if left_out > 0:
        shown.append(f"\n  ... and {left_out:,} characters more", "dim")
    return shown


def _json(body: bytes, *, indent: int) -> msgspec.Raw | None:
    """Return a body as JSON with this indent, its numbers unchanged; None if it is not JSON."""
    try:
        body.decode()
        return msgspec.Raw(msgspec.json.format(body, indent=indent))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _escape(text: str, encoding: str) -> str:
    """Return text without control characters, in characters that the encoding has."""
    printable = "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )
    return printable.encode(encoding, "backslashreplace").decode(encoding)


def _shorten(text: str, length_max: int) -> str:
    return text if len(text) <= length_max else f"{text[:length_max]}..."
