"""Load what the handlers of a claimed batch need, with one query for all of them."""

import dataclasses
from typing import Any

from msgspec.structs import replace

from penstock.kernel.claim import Claimed, Lease
from penstock.kernel.execute import to_item
from penstock.kernel.item import Fence, Item
from penstock.kernel.kind import AnyKind
from penstock.kernel.payload import UNDECODABLE
from penstock.postgres.pool import Connection


async def preload(
    db: Connection, lease: Lease, kind: AnyKind, *, fence: Fence | None = None
) -> Lease:
    """Return the lease with its items as handlers get them, after the kind's `preload`.

    An item with a payload of another type is left unchanged: its attempt fails with the reason.
    """
    assert kind.preload is not None
    sound: list[Claimed] = []
    flawed: list[Claimed] = []
    items: list[Item[Any]] = []
    for claimed in lease.items:
        item = _item(claimed, kind, lease.token, fence=fence)
        if item is None:
            flawed.append(claimed)
        else:
            sound.append(claimed)
            items.append(item)
    payloads = await kind.preload(db, items)
    # The items are not built a second time when they are executed: these lines run per item.
    ready = [
        replace(claimed, preloaded=replace(item, payload=payload))
        for claimed, item, payload in zip(sound, items, payloads, strict=True)
    ]
    return dataclasses.replace(lease, items=ready + flawed)


def _item(claimed: Claimed, kind: AnyKind, token: int, *, fence: Fence | None) -> Item[Any] | None:
    try:
        return to_item(claimed, kind, token, fence=fence)
    except UNDECODABLE:
        return None
