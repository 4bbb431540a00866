"""The errors of mail.

PenstockError
└── NotFound: UnknownMail, UnknownRelay, UnknownTemplate, UnknownSuppression
"""

from dataclasses import dataclass
from typing import ClassVar

from penstock.base.errors import NotFound


@dataclass(eq=False)
class UnknownMail(NotFound):
    """No mail has this id, or its body was removed by retention."""

    code: ClassVar[str] = "unknown-mail"
    mail_id: int

    def __str__(self) -> str:
        return f"no mail has the id {self.mail_id}"


@dataclass(eq=False)
class UnknownRelay(NotFound):
    """No relay has this name."""

    code: ClassVar[str] = "unknown-relay"
    relay: str

    def __str__(self) -> str:
        return f"no relay has the name {self.relay!r}"


@dataclass(eq=False)
class UnknownTemplate(NotFound):
    """No template has this name in the language or in the default one."""

    code: ClassVar[str] = "unknown-template"
    template: str

    def __str__(self) -> str:
        return f"no template has the name {self.template!r}"


@dataclass(eq=False)
class UnknownSuppression(NotFound):
    """The address is not suppressed."""

    code: ClassVar[str] = "unknown-suppression"
    address: str

    def __str__(self) -> str:
        return f"{self.address!r} is not suppressed"
