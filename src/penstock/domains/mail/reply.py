"""A reply of an SMTP server, or of none, in the words of this domain."""

from dataclasses import dataclass
from typing import Literal

# The step of the SMTP session that a reply answers. `data` is the command, `dot` the end of the
# message.
Phase = Literal[
    "connect", "banner", "ehlo", "starttls", "auth", "mail", "rcpt", "data", "dot", "quit"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One reply. `enhanced` is its enhanced status code (RFC 3463), and `text` the rest.

    The text may contain addresses: it is shown to people and never logged.
    """

    phase: Phase
    code: int
    enhanced: str | None
    text: str
