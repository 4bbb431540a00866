"""Load what the handlers of a claimed batch need, with one query for all of them."""

import dataclasses

from msgspec.structs import replace

from penstock.kernel.claim import Claimed, Lease
from penstock.kernel.kind import AnyKind
from penstock.kernel.payload import UNDECODABLE, decoder
from penstock.postgres.pool import Connection


async def preload(db: Connection, lease: Lease, kind: AnyKind) -> Lease:
    """Return the lease with the values that the kind's `preload` returned for its payloads.

    A payload of another type is left unchanged: its attempt fails with the reason.
    """
    assert kind.preload is not None
    decode = decoder(kind.payload_type).decode
    sound: list[Claimed] = []
    payloads: list[object] = []
    flawed: list[Claimed] = []
    for claimed in lease.items:
        try:
            payloads.append(decode(claimed.payload))
        except UNDECODABLE:
            flawed.append(claimed)
        else:
            sound.append(claimed)
    made = await kind.preload(db, payloads)
    ready = [replace(claimed, preloaded=each) for claimed, each in zip(sound, made, strict=True)]
    return dataclasses.replace(lease, items=ready + flawed)
