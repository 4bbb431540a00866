"""Load what the handlers of a claimed batch need, with one query for all of them."""

import dataclasses
from typing import Any

from msgspec.structs import replace

from penstock.kernel.claim import Claimed, Lease
from penstock.kernel.execute import to_item
from penstock.kernel.item import Item
from penstock.kernel.kind import AnyKind
from penstock.kernel.payload import UNDECODABLE
from penstock.postgres.pool import Connection


async def preload(db: Connection, lease: Lease, kind: AnyKind) -> Lease:
    """Return the lease with the values that the kind's `preload` returned for its items.

    An item with a payload of another type is left unchanged: its attempt fails with the reason.
    """
    assert kind.preload is not None
    items = [_item(claimed, kind, lease.token) for claimed in lease.items]
    sound = [claimed for claimed, item in zip(lease.items, items, strict=True) if item is not None]
    flawed = [claimed for claimed, item in zip(lease.items, items, strict=True) if item is None]
    made = await kind.preload(db, [item for item in items if item is not None])
    ready = [replace(claimed, preloaded=each) for claimed, each in zip(sound, made, strict=True)]
    return dataclasses.replace(lease, items=ready + flawed)


def _item(claimed: Claimed, kind: AnyKind, token: int) -> Item[Any] | None:
    try:
        return to_item(claimed, kind, token)
    except UNDECODABLE:
        return None
