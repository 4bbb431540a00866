"""Guards: what only the domain that owns a lane may do with it.

`enqueue` and changes of the policy are checked by the stored functions, the other verbs here.
"""

from typing import Literal, get_args

from penstock.kernel.errors import LaneIsOwned
from penstock.kernel.item import ItemId
from penstock.kernel.lane import FIELDS, Lane
from penstock.postgres.pool import Queries
from penstock.postgres.statement import statement

READ_GUARD = statement(__package__, "read_guard.sql")

Verb = Literal[
    "enqueue", "retry", "cancel", "reschedule", "replay", "resolve", "hold", "release", "skip"
]

# A guard of a field is `set:` and the field's name.
GUARDABLE = frozenset((*get_args(Verb), *(f"set:{name}" for name in FIELDS)))

# What others may not do with a lane that a domain declares, unless the domain allows it.
DEFAULT_GUARDS = {
    "enqueue": "only the domain itself enqueues its items",
    "set:ordering": "the domain relies on it",
    "set:on_dead_head": "the domain relies on it",
    "set:on_lost": "the domain relies on it",
}


async def check_item(db: Queries, item_id: ItemId, verb: Verb, *, owner: str | None) -> None:
    """Raise LaneIsOwned if the item's lane guards the verb and belongs to another than `owner`."""
    row = await db.fetchrow(READ_GUARD, item_id, verb)
    if row is not None and row["owner"] != owner:
        raise LaneIsOwned(row["name"], row["owner"], verb, row["pointer"])


def check_lane(lane: Lane, verb: Verb, *, owner: str | None) -> None:
    """Raise LaneIsOwned if the lane guards the verb and belongs to another domain than `owner`."""
    if verb in lane.guards and lane.owner != owner:
        raise LaneIsOwned(lane.name, lane.owner, verb, lane.guards[verb])
