"""Subscriptions: which events go to which URL, and how. Create, change, read and delete them.

Every change moves the version and is audited; secrets and headers are sealed, and shown once.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from secrets import token_hex
from typing import Any, Literal, Protocol

import asyncpg
import msgspec

from penstock.base.errors import InvalidInput
from penstock.base.vault import Vault
from penstock.contract.http import ACQUIRE_TIMEOUT
from penstock.domains.webhooks.errors import UnknownSubscription
from penstock.domains.webhooks.event import DEFAULT_TENANT, TENANT_LENGTH_MAX
from penstock.domains.webhooks.match import check_pattern, compile_filter, decode_filter
from penstock.domains.webhooks.prepared_subscription import Headers, headers_of, secret_of
from penstock.domains.webhooks.secret import (
    Ed25519Secret,
    Profile,
    Scheme,
    make_secret,
    public_key,
    read_secret,
)
from penstock.domains.webhooks.sign import Signer
from penstock.kernel.audit import audit
from penstock.postgres.pool import Connection, Pool, Queries, Row
from penstock.postgres.statement import statement

CREATE_SUBSCRIPTION = statement(__package__, "create_subscription.sql")
CHANGE_SUBSCRIPTION = statement(__package__, "change_subscription.sql")
LIST_SUBSCRIPTIONS = statement(__package__, "list_subscriptions.sql")
READ_SUBSCRIPTION = statement(__package__, "read_subscription.sql")
SET_PATTERNS = statement(__package__, "set_patterns.sql")
ADD_SECRET = statement(__package__, "add_secret.sql")
READ_SECRETS = statement(__package__, "read_secrets.sql")
DISABLE = statement(__package__, "disable.sql")
INACTIVE_SINCE = statement(__package__, "inactive_since.sql")

SubscriptionState = Literal["active", "paused", "disabled", "deleted"]

TYPES_MAX = 100
HEADERS_MAX = 20
HEADER_LENGTH_MAX = 1_024
SIGNED = ("webhook-", "svix-", "x-hub-signature", "stripe-signature")  # Headers of the profiles.
DESCRIPTION_LENGTH_MAX = 500
CONCURRENCY = 100  # At once and per subscription, over all workers that share a Redis.
RATE_LIMIT = 100.0  # A second; what the dispatcher that this replaces allowed everybody.
TIMEOUT = timedelta(seconds=15)
OVERLAP = timedelta(hours=24)  # How long the previous secret still signs.
OVERLAP_MAX = timedelta(days=30)
SCHEDULE_MAX = 50
SCHEDULE_DELAY_MAX = timedelta(days=30)
# Ten attempts in three days: the example of the Standard Webhooks specification.
STANDARD_SCHEDULE = (
    timedelta(seconds=5),
    timedelta(minutes=5),
    timedelta(minutes=30),
    *(timedelta(hours=hours) for hours in (2, 5, 10, 14, 20, 24)),
)

_SEGMENT = re.compile(r"[^.\x00]{1,128}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """A subscription as its owner sees it; of its headers, only the names."""

    id: str
    number: int
    tenant: str
    url: str
    event_types: Sequence[str]
    filter: str | None
    ordering_key: str | None
    description: str
    state: SubscriptionState
    state_reason: str | None
    profile: Profile
    rate_limit: float | None
    concurrency: int
    timeout: timedelta
    retry_schedule: Sequence[timedelta] | None
    header_names: Sequence[str]
    created_at: datetime
    updated_at: datetime
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSubscription:
    """What is asked for. `filter` is JSON text; `secret` is made if it is not brought."""

    url: str
    event_types: Sequence[str]
    tenant: str = DEFAULT_TENANT
    filter: str | None = None
    ordering_key: str | None = None
    description: str = ""
    profile: Profile = "standard"
    rate_limit: float | None = RATE_LIMIT
    concurrency: int = CONCURRENCY
    timeout: timedelta = TIMEOUT
    retry_schedule: Sequence[timedelta] | None = None
    headers: Mapping[str, str] | None = None
    scheme: Scheme = "hmac"
    secret: str | None = None


class Checker(Protocol):
    """Refuses what could not be sent."""

    def check_url(self, url: str) -> None:
        """Raise InvalidInput for a URL that cannot be, or that may not be reached."""
        ...

    def check_headers(self, headers: Headers) -> None:
        """Raise InvalidInput for a header that cannot be."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionService:
    """Where subscriptions are kept: the vault seals their secrets, the poster checks their URLs."""

    vault: Vault
    poster: Checker

    async def create(
        self, db: Connection, new: NewSubscription, *, who: str
    ) -> tuple[Subscription, str]:
        """Make a subscription, active at once; return it with its secret, which is shown once."""
        subscription_id = f"sub_{token_hex(12)}"
        if not 1 <= len(new.tenant) <= TENANT_LENGTH_MAX or "\x00" in new.tenant:
            raise InvalidInput("tenant", f"must have 1 to {TENANT_LENGTH_MAX} characters")
        columns = self._columns(subscription_id, _as_changes(new))
        secret = self._secret(new.secret, new.scheme, new.profile)
        async with db.transaction():
            number = await _run(
                db.fetchval(
                    CREATE_SUBSCRIPTION,
                    subscription_id,
                    new.tenant,
                    new.profile,
                    msgspec.json.encode(columns).decode(),
                )
            )
            await db.execute(SET_PATTERNS, number, columns["event_types"])
            await self._add_secret(db, number, subscription_id, secret=secret, overlap=OVERLAP)
            await audit(db, who, "subscription.created", subject=subscription_id)
            return await read_subscription(db, subscription_id), secret

    async def change(
        self, db: Connection, subscription_id: str, changes: Mapping[str, Any], *, who: str
    ) -> Subscription:
        """Change what is named; it holds for deliveries that are claimed after the commit."""
        columns = self._columns(subscription_id, changes)
        async with db.transaction():
            text = msgspec.json.encode(columns).decode()
            number = await _run(db.fetchval(CHANGE_SUBSCRIPTION, subscription_id, text))
            if number is None:
                raise UnknownSubscription(subscription_id)
            if "event_types" in columns:
                await db.execute(SET_PATTERNS, number, columns["event_types"])
            if columns.get("state") == "deleted":
                await db.execute(SET_PATTERNS, number, [])
            shown = {
                name: bytes(value).decode() if isinstance(value, msgspec.Raw) else value
                for name, value in columns.items()
                if name != "sealed_headers"
            }
            await audit(db, who, "subscription.changed", subject=subscription_id, after=shown)
            return await read_subscription(db, subscription_id, also_deleted=True)

    async def rotate_secret(
        self,
        db: Connection,
        subscription_id: str,
        *,
        secret: str | None = None,
        scheme: Scheme = "hmac",
        overlap: timedelta = OVERLAP,
        who: str,
    ) -> str:
        """Sign with a new secret from now on, and with the previous one during the overlap."""
        if not timedelta(0) <= overlap <= OVERLAP_MAX:
            raise InvalidInput("overlap_seconds", f"must be from 0 to {OVERLAP_MAX.days} days")
        async with db.transaction():
            found = await read_subscription(db, subscription_id)
            secret = self._secret(secret, scheme, found.profile)
            await self._add_secret(
                db, found.number, subscription_id, secret=secret, overlap=overlap
            )
            await db.fetchval(CHANGE_SUBSCRIPTION, subscription_id, "{}")
            await audit(db, who, "subscription.secret_rotated", subject=subscription_id)
        return secret

    async def public_keys(self, db: Connection, subscription_id: str) -> list[str]:
        """Return the public halves of the keys that sign now, the newest first."""
        found = await read_subscription(db, subscription_id)
        rows = await db.fetch(READ_SECRETS, found.number)
        secrets = [
            read_secret(self._opened(row["sealed"], subscription_id), found.profile) for row in rows
        ]
        return [public_key(secret) for secret in secrets if isinstance(secret, Ed25519Secret)]

    async def _add_secret(
        self,
        db: Connection,
        number: int,
        subscription_id: str,
        *,
        secret: str,
        overlap: timedelta,
    ) -> None:
        sealed = self.vault.seal(secret.encode(), about=secret_of(subscription_id))
        await db.execute(ADD_SECRET, number, sealed, overlap)

    def _opened(self, sealed: bytes, subscription_id: str) -> str:
        return self.vault.open(sealed, about=secret_of(subscription_id)).decode()

    def _secret(self, given: str | None, scheme: Scheme, profile: Profile) -> str:
        """Return a secret that can sign for the profile: the given one, or one that is made."""
        if scheme == "ed25519" and profile not in ("standard", "svix"):
            raise InvalidInput("scheme", f"must be hmac: {profile} knows nothing else")
        secret = given or make_secret(scheme)
        Signer(profile, [read_secret(secret, profile)])
        return secret

    def _columns(self, subscription_id: str, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Check what is to change and return it as the database takes it."""
        columns: dict[str, Any] = {}
        for name, value in changes.items():
            match name:
                case "event_types":
                    columns["event_types"] = _checked_types(value)
                case "filter":
                    columns |= _filter_columns(value)
                case "ordering_key":
                    columns["ordering_path"] = None if value is None else _segments(value)
                case "headers":
                    columns["sealed_headers"] = self._sealed_headers(subscription_id, value)
                    columns["header_names"] = sorted(value or ())
                case "url":
                    self.poster.check_url(value)
                    columns["url"] = value
                case "timeout":
                    columns["timeout"] = _seconds(value)
                case "retry_schedule":
                    columns["retry_schedule"] = _checked_schedule(value)
                case "description":
                    columns["description"] = _checked_description(value)
                case _:
                    columns[name] = value
        return columns

    def _sealed_headers(
        self, subscription_id: str, headers: Mapping[str, str] | None
    ) -> str | None:
        if not headers:
            return None
        if len(headers) > HEADERS_MAX:
            raise InvalidInput("headers", f"are more than {HEADERS_MAX}")
        for name, value in headers.items():
            if name.lower().startswith(SIGNED):
                reason = "is set by Penstock: it carries the signature"
                raise InvalidInput(f"headers.{name[:100]}", reason)
            if len(value) > HEADER_LENGTH_MAX:
                raise InvalidInput(
                    f"headers.{name[:100]}", f"has more than {HEADER_LENGTH_MAX} characters"
                )
        self.poster.check_headers(tuple(headers.items()))
        sealed = self.vault.seal(msgspec.json.encode(headers), about=headers_of(subscription_id))
        return f"\\x{sealed.hex()}"


async def read_subscription(
    db: Queries, subscription_id: str, *, also_deleted: bool = False
) -> Subscription:
    """Return a subscription or raise UnknownSubscription."""
    row = await db.fetchrow(READ_SUBSCRIPTION, subscription_id, also_deleted)
    if row is None:
        raise UnknownSubscription(subscription_id)
    return _to_subscription(row)


async def list_subscriptions(
    db: Queries, *, tenant: str | None, after: int, limit: int
) -> list[Subscription]:
    """Return a page of subscriptions, the oldest first; `after` is the last number before it."""
    return [
        _to_subscription(row) for row in await db.fetch(LIST_SUBSCRIPTIONS, tenant, after, limit)
    ]


async def inactive_since(db: Queries, subscription_id: str) -> datetime | None:
    """Return when a subscription was paused or disabled, None if it is active."""
    return await db.fetchval(INACTIVE_SINCE, subscription_id)


async def disable(pool: Pool, number: int, reason: str) -> None:
    """End a subscription whose endpoint is gone; its owner can make it active again."""
    async with pool.acquire(timeout=ACQUIRE_TIMEOUT.total_seconds()) as db, db.transaction():
        subscription_id = await db.fetchval(DISABLE, number, reason)
        if subscription_id is not None:
            after = {"state": "disabled", "reason": reason}
            await audit(db, "worker", "subscription.changed", subject=subscription_id, after=after)


def _as_changes(new: NewSubscription) -> dict[str, Any]:
    return {
        "url": new.url,
        "event_types": new.event_types,
        "filter": new.filter,
        "ordering_key": new.ordering_key,
        "description": new.description,
        "rate_limit": new.rate_limit,
        "concurrency": new.concurrency,
        "timeout": new.timeout,
        "retry_schedule": new.retry_schedule,
        "headers": new.headers,
    }


def _checked_types(types: Sequence[str]) -> list[str]:
    if not 1 <= len(types) <= TYPES_MAX:
        raise InvalidInput("event_types", f"must be 1 to {TYPES_MAX} patterns")
    for index, pattern in enumerate(types):
        check_pattern(pattern, f"event_types[{index}]")
    return list(dict.fromkeys(types))


def _filter_columns(text: str | None) -> dict[str, Any]:
    if text is None:
        return {"filter": None, "filter_path": None}
    path = compile_filter(decode_filter(text))
    return {"filter": msgspec.Raw(text.encode()), "filter_path": path}


def _segments(path: str) -> list[str]:
    segments = path.split(".")
    if len(segments) > 10 or not all(map(_SEGMENT.fullmatch, segments)):
        raise InvalidInput("ordering_key", "must be a path of fields of data, such as order.id")
    return segments


def _checked_schedule(schedule: Sequence[timedelta] | None) -> list[str] | None:
    if schedule is None:
        return None
    if len(schedule) > SCHEDULE_MAX:
        raise InvalidInput("retry_schedule_seconds", f"has more than {SCHEDULE_MAX} delays")
    for index, delay in enumerate(schedule):
        if not timedelta(0) <= delay <= SCHEDULE_DELAY_MAX:
            raise InvalidInput(
                f"retry_schedule_seconds[{index}]",
                f"must be from 0 to {SCHEDULE_DELAY_MAX.days} days",
            )
    return [_seconds(delay) for delay in schedule]


def _checked_description(text: str) -> str:
    if len(text) > DESCRIPTION_LENGTH_MAX or "\x00" in text:
        raise InvalidInput("description", f"must have at most {DESCRIPTION_LENGTH_MAX} characters")
    return text


def _seconds(duration: timedelta) -> str:
    return f"{duration.total_seconds():.6f} seconds"


async def _run(query: Any) -> Any:
    """Await a write; turn the database's refusal into an error that names the field."""
    try:
        return await query
    except asyncpg.CheckViolationError as refused:
        constraint = str(getattr(refused, "constraint_name", ""))
        field, rule = _RULES.get(constraint, ("subscription", constraint))
        raise InvalidInput(field, rule) from refused


# What the named constraints of the table ask for, in words.
_RULES = {
    "rate_limit_is_sane": ("rate_limit", "must be from 0.001 to 100,000 per second, or null"),
    "concurrency_is_sane": ("concurrency", "must be from 1 to 10,000"),
    "timeout_is_sane": ("timeout_seconds", "must be from 0.1 to 60"),
    "url_is_short": ("url", "must have 1 to 2,048 characters"),
}


def _to_subscription(row: Row) -> Subscription:
    path = row["ordering_path"]
    return Subscription(
        id=row["subscription_id"],
        number=row["subscription_no"],
        tenant=row["tenant"],
        url=row["url"],
        event_types=row["event_types"],
        filter=row["filter"],
        ordering_key=None if path is None else ".".join(path),
        description=row["description"],
        state=row["state"],
        state_reason=row["state_reason"],
        profile=row["profile"],
        rate_limit=row["rate_limit"],
        concurrency=row["concurrency"],
        timeout=row["timeout"],
        retry_schedule=row["retry_schedule"],
        header_names=row["header_names"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        version=row["version"],
    )
