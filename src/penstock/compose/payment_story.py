"""What other domains know of a payment: its slot, instruction, events and mails.

Each reader belongs to a domain that this process runs; without the domain there is nothing to read.
"""

from uuid import UUID

import msgspec

from penstock.base.settings import Settings, settings
from penstock.compose import mail
from penstock.compose.events import runs
from penstock.domains.mail.inspect import MailFilter, list_mails
from penstock.domains.outbox.errors import UnknownInstruction
from penstock.domains.outbox.inspect import InstructionView
from penstock.domains.outbox.inspect import read_story as read_instruction
from penstock.domains.payments.story import (
    DomainReaders,
    EventStory,
    InstructionStory,
    MailStory,
    RailAttempt,
    SlotStory,
    read_no_instruction,
    read_no_slot,
    read_nothing,
)
from penstock.domains.slots.inspect import read_item_slot
from penstock.domains.webhooks.event import DEFAULT_TENANT
from penstock.domains.webhooks.inspect import list_event_ids, read_event
from penstock.kernel.inspect import read_attempts
from penstock.kernel.item import ItemId
from penstock.kernel.why import why_item
from penstock.postgres.pool import Queries


def make_readers(chosen: Settings | None = None) -> DomainReaders:
    """Return what reads the story of a payment in the other domains of this process."""
    chosen = chosen or settings()
    return DomainReaders(
        read_slot=_read_slot if runs(chosen, "slots") else read_no_slot,
        read_instruction=_read_instruction if runs(chosen, "outbox") else read_no_instruction,
        read_events=_read_events if runs(chosen, "webhooks") else read_nothing,
        read_mails=_read_mails if mail.is_used(chosen) else read_nothing,
    )


async def _read_slot(db: Queries, item_id: ItemId) -> SlotStory | None:
    found = await read_item_slot(db, item_id)
    return None if found is None else msgspec.convert(found, SlotStory, from_attributes=True)


async def _read_instruction(db: Queries, outbox_id: UUID) -> InstructionStory | None:
    try:
        found = await read_instruction(db, outbox_id)
    except UnknownInstruction:
        return None
    return InstructionStory(
        outbox_id=outbox_id,
        sequence_id=found.instruction.sequence_id,
        state=found.instruction.state,
        reason=found.instruction.reason or await _waits_because(db, found.instruction),
        rail_reference=found.instruction.rail_reference,
        attempts=[
            msgspec.convert(each, RailAttempt, from_attributes=True) for each in found.attempts
        ],
    )


async def _waits_because(db: Queries, found: InstructionView) -> str | None:
    """Return why an instruction that is neither held nor failed waits; None if it just does."""
    match found.item_state:
        case "parked":
            reasons = await why_item(db, ItemId(found.item_id))
            return next((each.sentence for each in reasons if each.code == "behind_head"), None)
        case "scheduled" | "ready":
            attempts = await read_attempts(db, ItemId(found.item_id))
            return attempts[-1].reason if attempts else None
        case _:
            return None


async def _read_events(db: Queries, prefix: str) -> list[EventStory]:
    ids = await list_event_ids(db, DEFAULT_TENANT, prefix)
    events = [await read_event(db, DEFAULT_TENANT, each) for each in ids]
    return [msgspec.convert(each, EventStory, from_attributes=True) for each in events]


async def _read_mails(db: Queries, prefix: str) -> list[MailStory]:
    page = await list_mails(db, only=MailFilter(tag=prefix))
    return [msgspec.convert(each, MailStory, from_attributes=True) for each in page.mails[::-1]]
