"""Who calls: a bearer token with scopes. Nothing is cached: a revoked key is refused at once."""

import base64
import binascii

from starlette.requests import Request

from penstock.api.call import ACQUIRE_TIMEOUT
from penstock.base.errors import Forbidden, Unauthenticated
from penstock.kernel.keys import Key, Scope, authenticate
from penstock.postgres.pool import Pool

TOKEN_LENGTH_MAX = 512  # Ours have 56; what is longer is no key and need not be hashed.


async def authorize(pool: Pool, request: Request, scope: Scope) -> Key:
    """Return the caller's key; raises Unauthenticated, or Forbidden naming the missing scope."""
    token = _token(request)
    if not (0 < len(token) <= TOKEN_LENGTH_MAX and token.isascii() and token.isprintable()):
        raise Unauthenticated
    async with pool.acquire(timeout=ACQUIRE_TIMEOUT.total_seconds()) as db:
        key = await authenticate(db, token)
    if scope not in key.scopes and "admin" not in key.scopes:
        raise Forbidden(scope)
    return key


def challenge(request: Request) -> str:
    """Return the WWW-Authenticate of a 401; only a browser is asked for a password."""
    bearer = 'Bearer realm="penstock"'
    is_browser = "text/html" in request.headers.get("accept", "")
    return f'{bearer}, Basic realm="penstock, key as password"' if is_browser else bearer


def _token(request: Request) -> str:
    method, _, credentials = request.headers.get("authorization", "").partition(" ")
    credentials = credentials.strip()
    match method.lower():
        case "bearer":
            return credentials
        # A browser cannot send a bearer token to /docs. It repeats a password by itself, also for
        # a page of somebody else's, so a password must not change anything.
        case "basic" if request.method in {"GET", "HEAD"}:
            return _password(credentials)
        case _:
            return ""


def _password(credentials: str) -> str:
    try:
        pair = base64.b64decode(credentials, validate=True).decode()
    except (binascii.Error, ValueError):
        return ""
    return pair.partition(":")[2]
