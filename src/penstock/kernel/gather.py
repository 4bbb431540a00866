"""Bring what the handlers of a claimed batch need, with one query for all of them."""

import dataclasses

from msgspec.structs import replace

from penstock.kernel.claim import Claimed, Lease
from penstock.kernel.kind import AnyKind
from penstock.kernel.payload import UNDECODABLE, decoder
from penstock.postgres.pool import Connection


async def gather(db: Connection, lease: Lease, kind: AnyKind) -> Lease:
    """Return the lease with what the kind's `gather` has made of its payloads.

    A payload of another type is left as it is: the attempt will say so.
    """
    assert kind.gather is not None
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
    made = await kind.gather(db, payloads)
    ready = [replace(claimed, gathered=each) for claimed, each in zip(sound, made, strict=True)]
    return dataclasses.replace(lease, items=ready + flawed)
