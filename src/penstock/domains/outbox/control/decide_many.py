"""Hold or release many instructions: count them first, then go through them page by page."""

from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Literal

from penstock.domains.outbox.audit.archive import Archive
from penstock.domains.outbox.control.operate import HELD_BY_OPERATOR, archive_lost
from penstock.domains.outbox.lanes import LANE, OWNER
from penstock.kernel import operate, select
from penstock.kernel.item import ItemId
from penstock.postgres.pool import Connection, Queries

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
    """Hold or release the next ones that match, in one transaction."""
    if verb == "hold":
        decide = partial(operate.hold, who=who, reason=HELD_BY_OPERATOR + reason, owner=OWNER)
    else:
        decide = partial(operate.release, who=who, reason=reason, owner=OWNER)
    async with db.transaction():
        if verb == "release":
            await archive_lost(db, archive)
        return await select.decide_page(db, _select(verb, only), decide, after=after)


def _select(verb: BulkVerb, only: Filter) -> select.Selection:
    return select.Selection(
        lane=LANE,
        state="waiting" if verb == "hold" else "held",
        reason=only.with_reason,
        order_key=only.participant_id,
        before=only.before,
    )
