"""Hold or release many instructions: count them first, then go through them page by page."""

from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Literal

from penstock.domains.outbox.audit.archive import Archive
from penstock.domains.outbox.control.operate import archive_lost, hold
from penstock.domains.outbox.errors import ResultUnknown
from penstock.domains.outbox.lanes import LANE, OWNER
from penstock.kernel import operate, select
from penstock.kernel.errors import StateConflict
from penstock.kernel.item import ItemId
from penstock.postgres.pool import Connection, Queries
from penstock.postgres.statement import statement

FIND_OUTBOX_ID = statement(__package__, "find_outbox_id.sql")

BulkVerb = Literal["hold", "release"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which instructions; `with_reason` is why they are held, `before` when they were, or are due.

    To hold are the heads that wait, to release those that are held.
    """

    participant_id: str | None = None
    with_reason: str | None = None
    before: datetime | None = None


async def count_many(db: Queries, verb: BulkVerb, only: Filter) -> int:
    """Return how many match now."""
    return await select.count_selected(db, _select(verb, only), verb, owner=OWNER)


async def decide_page(
    db: Connection,
    verb: BulkVerb,
    only: Filter,
    *,
    archive: Archive,
    who: str,
    reason: str,
    after: ItemId | None = None,
) -> select.Decided:
    """Hold or release the next ones that match, in one transaction.

    What may have been paid is not held, as `operate.hold` says.
    """
    if verb == "hold":
        decide = partial(_hold, who=who, reason=reason)
    else:
        decide = partial(operate.release, who=who, reason=reason, owner=OWNER)
    async with db.transaction():
        if verb == "release":
            await archive_lost(db, archive)
        return await select.decide_page(db, _select(verb, only), decide, after=after)


async def _hold(db: Connection, item_id: ItemId, *, who: str, reason: str) -> None:
    outbox_id = await db.fetchval(FIND_OUTBOX_ID, item_id)
    try:
        await hold(db, outbox_id, who=who, reason=reason)
    except ResultUnknown as unknown:
        raise StateConflict(outbox_id, "in doubt", "held", unknown.advice) from unknown


def _select(verb: BulkVerb, only: Filter) -> select.Selection:
    return select.Selection(
        lane=LANE,
        state="waiting" if verb == "hold" else "held",
        reason=only.with_reason,
        order_key=only.participant_id,
        before=only.before,
    )
