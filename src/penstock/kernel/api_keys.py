"""Create, list, revoke and check API keys. Only a hash of the token is stored."""

import hashlib
import hmac
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, get_args

from penstock.base.errors import InvalidInput
from penstock.kernel.audit import audit
from penstock.kernel.errors import Unauthenticated, UnknownKey
from penstock.postgres.pool import Connection, Queries
from penstock.postgres.statement import statement

CREATE_KEY = statement(__package__, "create_key.sql")
IS_MADE_BY = statement(__package__, "is_made_by.sql")
LIST_KEYS = statement(__package__, "list_keys.sql")
READ_KEY = statement(__package__, "read_key.sql")
REVOKE_KEY = statement(__package__, "revoke_key.sql")

Scope = Literal["produce", "read", "approve", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
PREFIX = "psk"
CALLER = "key:"  # Begins the name of a caller that used a key, in the audit and elsewhere.
NAME_LENGTH_MAX = 100
TOKEN_LENGTH_MIN = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """An API key without its secret. `created_by` is the id of the key that made it, if one did."""

    key_id: str
    name: str
    scopes: list[Scope]
    created_at: datetime
    created_by: str | None
    revoked_at: datetime | None

    @property
    def caller(self) -> str:
        """The name under which what this key does is recorded."""
        return f"{CALLER}{self.key_id}"

    def allows(self, scope: Scope) -> bool:
        """Return whether the key may do this. `admin` has every scope except `approve`.

        An administrator must not become the second person of a decision by that alone.
        """
        return scope in self.scopes or (scope != "approve" and "admin" in self.scopes)


async def create_key(
    db: Connection, name: str, scopes: Sequence[str], *, who: str, token: str | None = None
) -> tuple[ApiKey, str]:
    """Create a key and return it with its token, which cannot be read again.

    If `who` is the caller of a key, that key has made this one. A given `token` (for automation)
    replaces the random one. The same token again updates name and scopes; a revoked key stays
    revoked.
    """
    if not 1 <= len(name) <= NAME_LENGTH_MAX or not name.isprintable():
        raise InvalidInput("name", f"must have 1 to {NAME_LENGTH_MAX} printable characters")
    unknown = set(scopes) - set(SCOPES)
    if unknown or not scopes:
        raise InvalidInput("scopes", f"must be some of {', '.join(SCOPES)}")
    if token is not None and len(token) < TOKEN_LENGTH_MIN:
        raise InvalidInput("token", f"must have at least {TOKEN_LENGTH_MIN} characters")
    token = token or new_token()
    async with db.transaction():
        row = await db.fetchrow(
            CREATE_KEY, _key_id(token), name, sorted(set(scopes)), _hash(token), key_id_of(who)
        )
        if row is None:
            raise InvalidInput("token", "has the same first characters as another key")
        after = {"name": name, "scopes": sorted(set(scopes))}
        await audit(db, who, "key.created", subject=row["key_id"], after=after)
    return ApiKey(**dict(row.items())), token


def new_token() -> str:
    """Return a token with 256 random bits."""
    return f"{PREFIX}_{secrets.token_hex(4)}_{secrets.token_urlsafe(32)}"


async def list_keys(db: Queries) -> list[ApiKey]:
    """Return all keys, revoked ones included, in the order of creation."""
    return [ApiKey(**dict(row.items())) for row in await db.fetch(LIST_KEYS)]


async def revoke_key(db: Connection, key_id: str, *, who: str) -> None:
    """Refuse the key from now on; a repeat is harmless."""
    async with db.transaction():
        if not await db.fetchval(REVOKE_KEY, key_id):
            raise UnknownKey(key_id)
        await audit(db, who, "key.revoked", subject=key_id)


def key_id_of(who: str) -> str | None:
    """Return the id of the key that a caller used; None for one without a key."""
    return who.removeprefix(CALLER) if who.startswith(CALLER) else None


async def is_made_by(db: Queries, key_id: str, maker_id: str) -> bool:
    """Return whether a key is `maker_id`, or was made by it, directly or through other keys."""
    return bool(await db.fetchval(IS_MADE_BY, key_id, maker_id))


async def authenticate(db: Queries, token: str) -> ApiKey:
    """Return the key of a token, or raise Unauthenticated; compares in constant time."""
    row = await db.fetchrow(READ_KEY, _key_id(token))
    stored: bytes = row["secret_hash"] if row is not None else bytes(32)
    is_same = hmac.compare_digest(stored, _hash(token))
    if row is None or not is_same or row["revoked_at"] is not None:
        raise Unauthenticated
    fields = {name: value for name, value in row.items() if name != "secret_hash"}
    return ApiKey(**fields)


def _key_id(token: str) -> str:
    """Return the public part of a token; of a given token, the beginning of its hash."""
    prefix, _, rest = token.partition("_")
    key_id, found, _ = rest.partition("_")
    if prefix == PREFIX and found and key_id.isascii() and key_id.isalnum():
        return key_id
    return hashlib.sha256(b"key id of " + _bytes(token)).hexdigest()[:8]


def _hash(token: str) -> bytes:
    """Hash a token. It has 256 random bits, so a slow hash would protect nothing."""
    return hashlib.sha256(_bytes(token)).digest()


def _bytes(token: str) -> bytes:
    """Encode a token from a request; a lone surrogate must not raise."""
    return token.encode(errors="surrogatepass")
