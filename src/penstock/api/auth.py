"""Who calls: a bearer token with scopes. Nothing is cached: a revoked key is refused at once."""

import base64
import binascii
from collections.abc import Sequence

from starlette.requests import Request

from penstock.app import Penstock
from penstock.base.coalesce import Coalescer
from penstock.base.errors import Forbidden, Unauthenticated
from penstock.contract.http import ACQUIRE_TIMEOUT
from penstock.kernel.keys import Key, Scope, authenticate

TOKEN_LENGTH_MAX = 512  # Ours have 56; what is longer is no key and need not be hashed.
LOOKUP_MAX = 1_000  # Callers whose tokens are looked up together; most of them have the same one.


class Door:
    """Lets callers in. Those who come together are looked up together, each after it came."""

    def __init__(self, penstock: Penstock) -> None:
        self._penstock = penstock
        self._keys: Coalescer[str, Key] = Coalescer(self._look_up, batch_max=LOOKUP_MAX)

    async def authorize(self, request: Request, scope: Scope) -> Key:
        """Return the caller's key; raises Unauthenticated, or Forbidden naming the scope."""
        token = _token(request)
        if not (0 < len(token) <= TOKEN_LENGTH_MAX and token.isascii() and token.isprintable()):
            raise Unauthenticated
        key = await self._keys.ask(token)
        if scope not in key.scopes and "admin" not in key.scopes:
            raise Forbidden(scope)
        return key

    async def _look_up(self, tokens: Sequence[str]) -> Sequence[Key | Exception]:
        found: dict[str, Key | Exception] = {}
        async with self._penstock.pool.acquire(timeout=ACQUIRE_TIMEOUT.total_seconds()) as db:
            for token in set(tokens):
                try:
                    found[token] = await authenticate(db, token)
                except Unauthenticated as refused:
                    found[token] = refused
        return [found[token] for token in tokens]


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
