"""Replies of an SMTP server: split the bytes into replies, and read their codes."""

import re
from typing import Literal

from msgspec import Struct

SmtpPhase = Literal[
    "connect", "banner", "ehlo", "starttls", "auth", "mail", "rcpt", "data", "dot", "quit"
]

TEXT_LENGTH_MAX = 500  # Of a reply, for people; the longest known ones have four lines.
# RFC 5321 allows 512 bytes a line; servers send up to a dozen lines.
REPLY_BYTES_MAX = 32 * 1024

RawReply = tuple[int, bytes]  # The code, and the text of all lines.

_ENHANCED = re.compile(r"([245]\.\d{1,3}\.\d{1,3})(?:\s+|$)")


class MalformedReply(Exception):
    """The server sent bytes that are not an SMTP reply."""


class SmtpReply(Struct, frozen=True, kw_only=True):
    """One reply. `enhanced` is its enhanced status code, and `text` the rest, on one line.

    The text may contain addresses: show it to people, and never log it. A struct, because there is
    one for every recipient (ADR 0009).
    """

    phase: SmtpPhase
    code: int
    enhanced: str | None
    text: str = ""


def make_reply(phase: SmtpPhase, code: int, text: str) -> SmtpReply:
    """Return a reply; an enhanced code of another class than `code` is taken for text."""
    enhanced: str | None = None
    lines: list[str] = []
    for line in text.splitlines():
        found = _ENHANCED.match(line)
        if found is not None and int(found[1][0]) == code // 100:
            enhanced = enhanced or found[1]
            line = line[found.end() :]  # noqa: PLW2901  Each line of a reply repeats it.
        lines.append(line.strip())
    joined = " ".join(line for line in lines if line)
    return SmtpReply(phase=phase, code=code, enhanced=enhanced, text=joined[:TEXT_LENGTH_MAX])


class ReplyReader:
    """Splits received bytes into replies, however they are cut."""

    __slots__ = ("_received", "_text")

    def __init__(self) -> None:
        self._received = b""
        self._text: list[bytes] = []  # The lines so far of a reply with several.

    def feed(self, data: bytes) -> list[RawReply]:
        """Return code and text of each reply that is complete now; raises MalformedReply."""
        received = self._received + data if self._received else data
        *lines, self._received = received.split(b"\n")
        replies: list[RawReply] = []
        for line in lines:
            code, separator = line[:3], line[3:4]
            if not code.isdigit() or separator not in (b" ", b"-", b"", b"\r"):
                raise MalformedReply("not an SMTP reply")
            if separator == b"-" or self._text:
                self._text.append(line[4:])
            if separator != b"-":
                replies.append((int(code), b"\n".join(self._text) if self._text else line[4:]))
                self._text.clear()
        if len(self._received) + sum(map(len, self._text)) > REPLY_BYTES_MAX:
            raise MalformedReply("a reply is too long")
        return replies
