"""Events of domains as webhooks: what the domains that announce something have in common."""

from collections.abc import Sequence

import msgspec

from penstock.base.settings import Settings
from penstock.contract.announce import Announce, DomainEvent, announce_nothing
from penstock.domains.webhooks.accept import accept_events
from penstock.domains.webhooks.event import NewEvent
from penstock.postgres.pool import Connection

SOURCE = "penstock"  # Of the events that Penstock makes itself.


def runs(chosen: Settings, name: str) -> bool:
    """Return whether this process runs a domain."""
    return chosen.domains is None or name in chosen.domains


def choose_announce(chosen: Settings) -> Announce[DomainEvent]:
    """Return what hands events to webhooks, or to nobody if this process does not run them."""
    return _announce if runs(chosen, "webhooks") else announce_nothing


async def _announce(db: Connection, events: Sequence[DomainEvent]) -> None:
    """Accept events as webhooks, in the transaction that writes what they are about."""
    await accept_events(db, [to_event(each.type, each) for each in events])


def to_event(event_type: str, data: object, *, event_id: str | None = None) -> NewEvent:
    """Return an event that Penstock makes itself; one with a known id is accepted once."""
    return NewEvent(
        type=event_type, data=msgspec.json.encode(data).decode(), id=event_id, source=SOURCE
    )
