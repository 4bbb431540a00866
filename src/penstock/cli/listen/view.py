"""One request as it is shown: judged by its signature, for people in colours, for programs as JSON.

What strangers send never reaches the terminal unescaped.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from rich.console import Console
from rich.highlighter import JSONHighlighter
from rich.text import Text

from penstock.cli.listen.server import Received
from penstock.domains.webhooks.secret import (
    PUBLIC_PREFIX,
    Ed25519PublicKey,
    Profile,
    Secret,
    read_public_key,
    read_secret,
)
from penstock.domains.webhooks.sign import verify

IDS_MAX = 10_000  # Messages whose tries are counted; the oldest are forgotten.
BODY_LENGTH_MAX = 4_000  # Characters shown to people: two screens full.
HEADERS_MAX = 40
HEADER_LENGTH_MAX = 200
WORD_LENGTH_MAX = 128  # Of an id or a type, as those of Penstock.

UNCHECKED = "unchecked"
VERIFIED = "verified"
# They say how a request came and not what it is about.
PLAIN_HEADERS = {"accept", "accept-encoding", "connection", "content-length", "host"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A request and what is known of it. `verdict` is a word to decide by, `detail` a sentence."""

    request: Received
    status: int
    verdict: str
    detail: str | None
    event_id: str | None
    event_type: str | None
    try_number: int


class _Envelope(msgspec.Struct):
    """What a body says of its event, if it is one of ours."""

    id: str | None = None
    type: str | None = None


@dataclass(slots=True, kw_only=True)
class Judge:
    """Verifies requests with any of its secrets, and counts how often a message has come."""

    profile: Profile
    secrets: Sequence[Secret | Ed25519PublicKey]
    _tries: OrderedDict[str, int] = field(default_factory=OrderedDict[str, int])

    def judge(self, request: Received, status: int) -> Seen:
        """Return what is to be shown of a request that was answered with `status`."""
        verdict, detail = self._verify(request)
        envelope = _envelope(request.body)
        headers = request.headers
        event_id = headers.get("webhook-id") or headers.get("svix-id") or envelope.id
        return Seen(
            request=request,
            status=status,
            verdict=verdict,
            detail=detail,
            event_id=event_id,
            event_type=envelope.type or headers.get("x-github-event"),
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
    """Read a secret, or a public key where there are any; raises InvalidInput."""
    if text.startswith(PUBLIC_PREFIX) and profile in {"standard", "svix"}:
        return read_public_key(text)
    return read_secret(text, profile)


def as_record(seen: Seen) -> dict[str, Any]:
    """Return a request for programs, with its whole body: as JSON if it is JSON, else as text."""
    request = seen.request
    value = _json(request.body, indent=-1)
    return {
        "received_at": request.received_at,
        "verdict": seen.verdict,
        "detail": seen.detail,
        "id": seen.event_id,
        "type": seen.event_type,
        "try": seen.try_number,
        "method": request.method,
        "path": request.path,
        "status": seen.status,
        "headers": request.headers,
        "body": request.body.decode(errors="replace") if value is None else value,
    }


def as_text(seen: Seen, *, encoding: str) -> Text:
    """Return a request for people; only characters that `encoding` has."""

    def safe(text: str, length_max: int = WORD_LENGTH_MAX) -> str:
        return _shorten(_escape(text, encoding), length_max)

    request = seen.request
    shown = Text(f"{request.received_at:%H:%M:%S}.{request.received_at.microsecond // 1000:03}Z ")
    shown.append(*_verdict(seen))
    for word, style in (
        (seen.event_type, "bold"),
        (seen.event_id, "cyan"),
        (f"try {seen.try_number}" if seen.try_number > 1 else None, "yellow"),
    ):
        if word:
            shown.append(f"  {safe(word)}", style)
    shown.append(f"  {safe(request.method)} {safe(request.path)}", "dim")
    shown.append(f"  answered {seen.status}", "dim" if seen.status < 300 else "yellow")
    for name, value in _telling(request.headers):
        shown.append(f"\n  {safe(name)}: ", "dim")
        shown.append(safe(value, HEADER_LENGTH_MAX), "dim")
    if request.body:
        shown.append("\n").append_text(_body(request.body, encoding))
    return shown.append("\n")


def show(seen: Seen, console: Console) -> None:
    """Print a request for people."""
    shown = as_text(seen, encoding=console.encoding)
    console.print(shown, soft_wrap=True, highlight=False, markup=False, emoji=False)


def _verdict(seen: Seen) -> tuple[str, str]:
    match seen.verdict:
        case "verified":
            return "verified", "bold green"
        case "unchecked":
            return f"not verified: {seen.detail}", "bold yellow"
        case _:
            return f"NOT VERIFIED ({seen.verdict}: {seen.detail})", "bold red"


def _envelope(body: bytes) -> _Envelope:
    try:
        return msgspec.json.decode(body, type=_Envelope)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _Envelope()


def _telling(headers: Mapping[str, str]) -> list[tuple[str, str]]:
    return [pair for pair in headers.items() if pair[0] not in PLAIN_HEADERS][:HEADERS_MAX]


def _body(body: bytes, encoding: str) -> Text:
    """Return a body indented if it is JSON, and as text if not; of a long one the beginning."""
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
    """Return a body as JSON with this indent, its numbers untouched; None if it is none."""
    try:
        body.decode()
        return msgspec.Raw(msgspec.json.format(body, indent=indent))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _escape(text: str, encoding: str) -> str:
    """Return text that does nothing to a terminal but to be read, and fits its encoding."""
    printable = "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )
    return printable.encode(encoding, "backslashreplace").decode(encoding)


def _shorten(text: str, length_max: int) -> str:
    return text if len(text) <= length_max else f"{text[:length_max]}..."
