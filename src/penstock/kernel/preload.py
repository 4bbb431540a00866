"""Load what the handlers of a claimed batch need, with one query for all of them."""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import asyncpg
from msgspec.structs import replace

from penstock.kernel.claim import Claimed, Lease
from penstock.kernel.execute import to_item
from penstock.kernel.item import Fence, Item
from penstock.kernel.kind import AnyKind
from penstock.kernel.payload import UNDECODABLE
from penstock.postgres.errors import DatabaseAway
from penstock.postgres.pool import CONNECTION_LOST, Connection

# No item is the cause, and the next claim tries again.
DATABASE_FAILED = (*CONNECTION_LOST, DatabaseAway, asyncpg.PostgresError)


class _Failed(NamedTuple):
    """In place of a payload: what `preload` raised for this item alone."""

    failure: Exception


async def preload(
    db: Connection, lease: Lease, kind: AnyKind, *, fence: Fence | None = None
) -> Lease:
    """Return the lease with its items as handlers get them, after the kind's `preload`.

    An item with a payload of another type, or one that cannot be preloaded, is left without: its
    attempt fails with the reason.
    """
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
    payloads = await _payloads(db, items, kind)
    # The items are not built a second time when they are executed: these lines run per item.
    ready = [
        replace(claimed, preload_failure=payload.failure)
        if isinstance(payload, _Failed)
        else replace(claimed, preloaded=replace(item, payload=payload))
        for claimed, item, payload in zip(sound, items, payloads, strict=True)
    ]
    return dataclasses.replace(lease, items=ready + flawed)


async def _payloads(
    db: Connection, items: Sequence[Item[Any]], kind: AnyKind
) -> Sequence[object | _Failed]:
    """Preload items together; if that fails, each for itself, so that it fails alone."""
    assert kind.preload is not None
    try:
        payloads = await kind.preload(db, items)
        if len(payloads) == len(items):
            return payloads
        failure = ValueError(f"preload returned {len(payloads)} payloads for {len(items)} items")
    except DATABASE_FAILED:
        raise
    except Exception as raised:  # noqa: BLE001  A domain's own function may raise anything.
        failure = raised
    if len(items) == 1:
        return [_Failed(failure)]
    return [payload for item in items for payload in await _payloads(db, [item], kind)]


def _item(claimed: Claimed, kind: AnyKind, token: int, *, fence: Fence | None) -> Item[Any] | None:
    try:
        return to_item(claimed, kind, token, fence=fence)
    except UNDECODABLE:
        return None
