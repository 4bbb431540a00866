"""The first admin key: that of PENSTOCK_ADMIN_KEY, or a new one that is shown once."""

from penstock.app import Penstock
from penstock.base.settings import settings
from penstock.kernel.api_keys import SCOPES, authenticate, create_key, list_keys, new_token
from penstock.kernel.errors import Unauthenticated
from penstock.postgres.pool import Connection

NAME = "admin"
WHO = "penstock up"


async def ensure_given_key(app: Penstock) -> bool:
    """Store the key of PENSTOCK_ADMIN_KEY; return whether it is set. A repeat is harmless."""
    given = settings().admin_key
    if given is None:
        return False
    token = given.get_secret_value()

    async def ensure() -> None:
        async with app.pool.acquire() as db:
            if not await _is_known(db, token):
                await create_key(db, NAME, SCOPES, who=WHO, token=token)

    await app.keep_trying(ensure)
    return True


async def ensure_admin_key(app: Penstock) -> str | None:
    """Return the token of a new admin key if there has never been one and none is given."""
    if await ensure_given_key(app):
        return None
    token = new_token()

    async def ensure() -> bool:
        async with app.pool.acquire() as db:
            if any("admin" in key.scopes for key in await list_keys(db)):
                # It is this one if the connection was lost between the commit and its answer.
                return await _is_known(db, token)
            await create_key(db, NAME, SCOPES, who=WHO, token=token)
        return True

    return token if await app.keep_trying(ensure) else None


async def _is_known(db: Connection, token: str) -> bool:
    try:
        await authenticate(db, token)
    except Unauthenticated:
        return False
    return True
