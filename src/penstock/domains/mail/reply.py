"""An SMTP reply, or the absence of one."""

from typing import Literal

from msgspec import Struct

# The step of the SMTP session that a reply answers. `data` is the command, `dot` the end of the
# message.
SmtpPhase = Literal[
    "connect", "banner", "ehlo", "starttls", "auth", "mail", "rcpt", "data", "dot", "quit"
]


class RelayReply(Struct, frozen=True, kw_only=True):
    """One reply. `enhanced` is its enhanced status code (RFC 3463), and `text` the rest.

    The text may contain addresses: it is shown to people and never logged. A struct, because a
    worker makes one for every recipient (ADR 0009).
    """

    phase: SmtpPhase
    code: int
    enhanced: str | None
    text: str
