"""An instruction that a person decides about, and what is known of its payment."""

from dataclasses import dataclass
from uuid import UUID

from penstock.domains.outbox.errors import UnknownInstruction
from penstock.kernel.item import ItemId
from penstock.postgres.pool import Connection, Queries
from penstock.postgres.statement import statement

READ_FACTS = statement(__package__, "read_facts.sql")
LOCK_INSTRUCTION = statement(__package__, "lock_instruction.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class InstructionFacts:
    """`may_be_paid`: an earlier attempt may have paid it, and nothing has shown that none did.

    `is_returned`: it was paid and has come back. `needs_approval`: its amount is above the
    threshold. `is_skipped`: an operator passed it over. `is_sent_again`: its producer has sent it
    under another key.
    """

    outbox_id: UUID
    item_id: ItemId
    instruction_id: str
    participant_id: str
    sequence_id: int
    created_by: str
    is_paid: bool
    is_returned: bool
    may_be_paid: bool
    needs_approval: bool
    is_skipped: bool
    is_sent_again: bool


async def read_facts(db: Queries, outbox_id: UUID) -> InstructionFacts:
    """Return the instruction, or raise UnknownInstruction."""
    row = await db.fetchrow(READ_FACTS, outbox_id)
    if row is None:
        raise UnknownInstruction(str(outbox_id))
    return InstructionFacts(**dict(row.items()))


async def lock_facts(db: Connection, outbox_id: UUID) -> InstructionFacts:
    """Return the instruction as it is once nobody else decides about it, in a transaction.

    A release, a skip and a producer that sends it under another key take the same lock. What was
    read before it was granted may be wrong by then.
    """
    before = await read_facts(db, outbox_id)
    await db.fetch(LOCK_INSTRUCTION, before.instruction_id)
    return await read_facts(db, outbox_id)
