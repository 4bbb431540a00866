"""API keys over REST. Only the response that creates a key contains its token."""

import msgspec

from penstock.api import wire
from penstock.contract.http import NoParameters
from penstock.kernel import api_keys as kernel
from penstock.web.call import WebCall


async def list_all(call: WebCall[NoParameters, None]) -> wire.Keys:
    """Show every API key."""
    async with call.connection() as db:
        return wire.Keys(keys=[_shown(key) for key in await kernel.list_keys(db)])


async def create(call: WebCall[NoParameters, wire.NewKey]) -> wire.CreatedKey:
    """Create an API key."""
    async with call.connection() as db:
        key, token = await kernel.create_key(db, call.body.name, call.body.scopes, who=call.who)
    return wire.CreatedKey(key=_shown(key), token=token)


async def revoke(call: WebCall[wire.KeyRef, None]) -> None:
    """Revoke an API key at once on this node, and within 100 ms on the others."""
    async with call.connection() as db:
        await kernel.revoke_key(db, call.parameters.key_id, who=call.who)
    call.context.authenticator.clear_cache()


def _shown(key: kernel.ApiKey) -> wire.Key:
    return msgspec.convert(key, wire.Key, from_attributes=True)
