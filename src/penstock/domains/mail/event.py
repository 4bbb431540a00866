"""Events of mails; `compose` decides who receives them."""

from collections.abc import Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

from penstock.contract import announce

EventType = Literal["mail.sent", "mail.failed", "mail.bounced", "mail.complained"]


class MailEvent(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What happened to one recipient of one mail."""

    type: EventType
    mail_id: int | None
    recipient_no: int | None
    recipient: str | None
    tags: Sequence[str] = ()
    reason: str | None = None
    code: int | None = None
    enhanced: str | None = None


Announce: TypeAlias = announce.Announce[MailEvent]
