"""The first admin key: given by PENSTOCK_ADMIN_KEY, or made when there is none and shown once."""

from penstock.app import Penstock
from penstock.base.errors import Unauthenticated
from penstock.base.settings import settings
from penstock.kernel.keys import SCOPES, authenticate, create_key, list_keys

NAME = "admin"
WHO = "penstock up"


async def ensure_given_key(app: Penstock) -> bool:
    """Let the key in the environment in; return whether there is one. A repeat is harmless."""
    given = settings().admin_key
    if given is None:
        return False
    token = given.get_secret_value()
    async with app.pool.acquire() as db:
        try:
            await authenticate(db, token)
        except Unauthenticated:
            await create_key(db, NAME, SCOPES, who=WHO, token=token)
    return True


async def ensure_admin_key(app: Penstock) -> str | None:
    """Return the token of a new admin key if there has never been one and none is given."""
    if await ensure_given_key(app):
        return None
    async with app.pool.acquire() as db:
        if any("admin" in key.scopes for key in await list_keys(db)):
            return None
        _, token = await create_key(db, NAME, SCOPES, who=WHO)
    return token
