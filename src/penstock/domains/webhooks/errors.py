"""The errors of webhooks.

PenstockError
├── NotFound: UnknownEvent, UnknownSubscription
└── Conflict: EventConflict, ReplayConflict
"""

from dataclasses import dataclass
from typing import ClassVar

from penstock.base.errors import Conflict, NotFound


@dataclass(eq=False)
class UnknownEvent(NotFound):
    """No event of this tenant has this id."""

    code: ClassVar[str] = "unknown-event"
    event_id: str

    def __str__(self) -> str:
        return f"no event has the id {self.event_id!r}"


@dataclass(eq=False)
class UnknownSubscription(NotFound):
    """No subscription has this id, or it was deleted."""

    code: ClassVar[str] = "unknown-subscription"
    subscription_id: str

    def __str__(self) -> str:
        return f"no subscription has the id {self.subscription_id!r}"


@dataclass(eq=False)
class EventConflict(Conflict):
    """The id or the idempotency key of the event belongs to another event."""

    code: ClassVar[str] = "event-conflict"
    event_id: str

    def __str__(self) -> str:
        return f"event {self.event_id!r} was accepted before with another content"


@dataclass(eq=False)
class ReplayConflict(Conflict):
    """The replay's state does not allow what was asked, such as pausing a finished one."""

    code: ClassVar[str] = "replay-conflict"
    replay_id: int
    state: str

    def __str__(self) -> str:
        return f"replay {self.replay_id} is {self.state}"
