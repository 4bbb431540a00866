"""Authenticate callers by bearer tokens with scopes. Keys are cached for 100 ms."""

import base64
import binascii
from collections.abc import Sequence
from datetime import timedelta
from time import monotonic

from starlette.requests import Request

from penstock.app import Penstock
from penstock.base.coalesce import Coalescer
from penstock.contract.http import ACQUIRE_TIMEOUT
from penstock.kernel.api_keys import ApiKey, Scope, authenticate
from penstock.kernel.errors import Forbidden, Unauthenticated
from penstock.web.request_wrapper import header

TOKEN_LENGTH_MAX = 512  # Tokens have 56 characters; a longer one is no key and need not be hashed.
LOOKUP_MAX = 1_000  # Requests whose tokens are read together; most of them have the same one.
# Revocation on another node reaches this one so much later, which no caller can distinguish from a
# request that was in progress. Reading the key for each request was a fifth of the request's cost.
CACHED_FOR = timedelta(milliseconds=100)
CACHED_MAX = 10_000  # Keys; a deployment has a handful.


class Authenticator:
    """Checks the keys of requests; concurrent requests share one read, started after they came."""

    def __init__(self, penstock: Penstock) -> None:
        self._penstock = penstock
        self._keys: Coalescer[str, ApiKey] = Coalescer(self._read, batch_max=LOOKUP_MAX)
        self._cache: dict[str, tuple[ApiKey, float]] = {}
        self._revoked_count = 0

    async def authorize(self, request: Request, scope: Scope) -> ApiKey:
        """Return the caller's key; raises Unauthenticated, or Forbidden naming the scope."""
        token = _token(request)
        if not (0 < len(token) <= TOKEN_LENGTH_MAX and token.isascii() and token.isprintable()):
            raise Unauthenticated
        key, until = self._cache.get(token, (None, 0.0))
        if key is None or until < monotonic():
            key = await self._keys.ask(token)
        if not key.allows(scope):
            raise Forbidden(scope)
        return key

    def clear_cache(self) -> None:
        """Read every key again, also one whose read is in progress: a key was revoked here."""
        self._cache.clear()
        self._revoked_count += 1

    async def _read(self, tokens: Sequence[str]) -> Sequence[ApiKey | Exception]:
        found: dict[str, ApiKey | Exception] = {}
        started_at, revoked_count = monotonic(), self._revoked_count
        async with self._penstock.pool.acquire(timeout=ACQUIRE_TIMEOUT.total_seconds()) as db:
            for token in set(tokens):
                try:
                    found[token] = await authenticate(db, token)
                except Unauthenticated as refused:
                    found[token] = refused
        if revoked_count == self._revoked_count:
            self._store(found, until=started_at + CACHED_FOR.total_seconds())
        return [found[token] for token in tokens]

    def _store(self, found: dict[str, ApiKey | Exception], *, until: float) -> None:
        if len(self._cache) > CACHED_MAX:
            self._cache.clear()
        for token, key in found.items():
            if isinstance(key, ApiKey):
                self._cache[token] = (key, until)
            else:
                self._cache.pop(token, None)


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
        # A browser cannot send a bearer token to /docs. It repeats a password by itself, also in
        # requests that another site causes, so a password must not change anything.
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
