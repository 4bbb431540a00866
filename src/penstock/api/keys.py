"""API keys over REST. A token is in the answer that makes it and in no other."""

import msgspec

from penstock.api import wire
from penstock.api.call import Call
from penstock.contract.http import NoParameters
from penstock.kernel import keys as kernel


async def list_all(call: Call[NoParameters, None]) -> wire.Keys:
    """Show every API key."""
    async with call.connection() as db:
        return wire.Keys(keys=[_shown(key) for key in await kernel.list_keys(db)])


async def create(call: Call[NoParameters, wire.NewKey]) -> wire.CreatedKey:
    """Make an API key."""
    async with call.connection() as db:
        key, token = await kernel.create_key(db, call.body.name, call.body.scopes, who=call.who)
    return wire.CreatedKey(key=_shown(key), token=token)


async def revoke(call: Call[wire.KeyRef, None]) -> None:
    """Refuse the key from now on."""
    async with call.connection() as db:
        await kernel.revoke_key(db, call.parameters.key_id, who=call.who)
    call.site.door.forget()


def _shown(key: kernel.Key) -> wire.Key:
    return msgspec.convert(key, wire.Key, from_attributes=True)
