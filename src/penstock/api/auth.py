"""Who calls: a bearer token with scopes. A key is believed for a moment, then looked up again."""

import base64
import binascii
from collections.abc import Sequence
from datetime import timedelta
from time import monotonic

from starlette.requests import Request

from penstock.api.envelope import header
from penstock.app import Penstock
from penstock.base.coalesce import Coalescer
from penstock.base.errors import Forbidden, Unauthenticated
from penstock.contract.http import ACQUIRE_TIMEOUT
from penstock.kernel.keys import Key, Scope, authenticate

TOKEN_LENGTH_MAX = 512  # Ours have 56; what is longer is no key and need not be hashed.
LOOKUP_MAX = 1_000  # Callers whose tokens are looked up together; most of them have the same one.
# How long a key that was just looked up is believed. Nobody who revokes a key on another node can
# tell it from a request that was on its way, and a look-up for each call was a fifth of its cost.
BELIEVED_FOR = timedelta(milliseconds=100)
BELIEVED_MAX = 10_000  # Keys; a deployment has a handful.


class Door:
    """Lets callers in. Those who come together are looked up together, each after it came."""

    def __init__(self, penstock: Penstock) -> None:
        self._penstock = penstock
        self._keys: Coalescer[str, Key] = Coalescer(self._look_up, batch_max=LOOKUP_MAX)
        self._believed: dict[str, tuple[Key, float]] = {}
        self._revoked_count = 0

    async def authorize(self, request: Request, scope: Scope) -> Key:
        """Return the caller's key; raises Unauthenticated, or Forbidden naming the scope."""
        token = _token(request)
        if not (0 < len(token) <= TOKEN_LENGTH_MAX and token.isascii() and token.isprintable()):
            raise Unauthenticated
        key, until = self._believed.get(token, (None, 0.0))
        if key is None or until < monotonic():
            key = await self._keys.ask(token)
        if scope not in key.scopes and "admin" not in key.scopes:
            raise Forbidden(scope)
        return key

    def forget(self) -> None:
        """Look every key up again, also those whose look-up is under way: one was revoked here."""
        self._believed.clear()
        self._revoked_count += 1

    async def _look_up(self, tokens: Sequence[str]) -> Sequence[Key | Exception]:
        found: dict[str, Key | Exception] = {}
        asked_at, revoked_count = monotonic(), self._revoked_count
        async with self._penstock.pool.acquire(timeout=ACQUIRE_TIMEOUT.total_seconds()) as db:
            for token in set(tokens):
                try:
                    found[token] = await authenticate(db, token)
                except Unauthenticated as refused:
                    found[token] = refused
        if revoked_count == self._revoked_count:
            self._believe(found, until=asked_at + BELIEVED_FOR.total_seconds())
        return [found[token] for token in tokens]

    def _believe(self, found: dict[str, Key | Exception], *, until: float) -> None:
        if len(self._believed) > BELIEVED_MAX:
            self._believed.clear()
        for token, key in found.items():
            if isinstance(key, Key):
                self._believed[token] = (key, until)
            else:
                self._believed.pop(token, None)


def challenge(request: Request) -> str:
    """Return the WWW-Authenticate of a 401; only a browser is asked for a password."""
    bearer = 'Bearer realm="penstock"'
    is_browser = "text/html" in request.headers.get("accept", "")
    return f'{bearer}, Basic realm="penstock, key as password"' if is_browser else bearer


def _token(request: Request) -> str:
    method, _, credentials = header(request, b"authorization").partition(" ")
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
