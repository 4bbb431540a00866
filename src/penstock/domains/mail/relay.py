"""Relays and limits: rows that an operator changes, read again for every claimed batch."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal, cast
from urllib.parse import unquote, urlsplit

from penstock.base.errors import BadSetting, InvalidInput, SealBroken
from penstock.base.vault import Vault
from penstock.domains.mail.errors import UnknownRelay
from penstock.kernel.audit import audit
from penstock.postgres.pool import Connection, Queries, Row
from penstock.postgres.statement import statement

LIST_RELAYS = statement(__package__, "list_relays.sql")
PUT_RELAY = statement(__package__, "put_relay.sql")
REMOVE_RELAY = statement(__package__, "remove_relay.sql")
LIST_LIMITS = statement(__package__, "list_limits.sql")
HAS_LIMITED = statement(__package__, "has_limited.sql")
PUT_LIMIT = statement(__package__, "put_limit.sql")
REMOVE_LIMIT = statement(__package__, "remove_limit.sql")

TlsPolicy = Literal["none", "opportunistic", "starttls", "tls"]
LimitScope = Literal["relay", "sender", "domain", "group"]

DEFAULT_RELAY = "default"  # That of PENSTOCK_SMTP_URL; it has no row.
SUBMISSION_PORT = 587
SUBMISSIONS_PORT = 465
FALLBACK_LAST = 1_000_000  # The priority of the default relay: rows come first.
NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,62}")  # As the table's CHECK.


@dataclass(frozen=True, slots=True, kw_only=True)
class SmtpRelay:
    """One SMTP server that takes mails. The relay with the lowest priority is tried first.

    `fault` says why this process cannot use it.
    """

    name: str
    host: str
    port: int
    tls: TlsPolicy = "opportunistic"
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    priority: int = 100
    connections_max: int = 10
    messages_per_connection_max: int = 100
    idle_time: timedelta = timedelta(seconds=30)
    is_enabled: bool = True
    fault: str | None = None
    updated_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MailLimit:
    """How many mails may go out; the name * is for all that have no limit of their own."""

    scope: LimitScope
    name: str
    per_second: float | None = None
    per_minute: float | None = None
    per_hour: int | None = None
    per_day: int | None = None

    @property
    def rate(self) -> float | None:
        """The limits of seconds and minutes as mails per second; those of a minute are spread."""
        if self.per_minute is None:
            return self.per_second
        spread = self.per_minute / 60
        return spread if self.per_second is None else min(self.per_second, spread)

    @property
    def has_quota(self) -> bool:
        """Whether there is a limit that is counted in a row."""
        return self.per_hour is not None or self.per_day is not None


class MailLimits:
    """The limits by scope and name, and the groups of domains."""

    def __init__(
        self, limits: Iterable[MailLimit] = (), *, groups: Mapping[str, str] | None = None
    ) -> None:
        self._limits = {(each.scope, each.name): each for each in limits}
        self._groups = groups or {}

    def find(self, scope: LimitScope, name: str) -> MailLimit | None:
        """Return the limit of a name, or that of *, which each name has for itself."""
        return self._limits.get((scope, name)) or self._limits.get((scope, "*"))

    def group_of(self, domain: str) -> str | None:
        """Return the group of a recipient's domain."""
        return self._groups.get(domain)


def parse_smtp_url(url: str) -> SmtpRelay:
    """Return the relay of PENSTOCK_SMTP_URL; raises BadSetting, never with the password."""
    name = "PENSTOCK_SMTP_URL"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise BadSetting(name, "is not a URL such as smtp://host:587") from None
    if parts.scheme not in ("smtp", "smtps") or not parts.hostname:
        raise BadSetting(name, "is not a URL such as smtp://host:587")
    if parts.path not in ("", "/") or parts.query or parts.fragment:
        raise BadSetting(name, "must not have a path, a query or a fragment")
    if (parts.username is None) != (parts.password is None):
        raise BadSetting(name, "has a user without a password, or the other way round")
    is_tls = parts.scheme == "smtps"
    has_account = parts.username is not None
    tls: TlsPolicy = "tls" if is_tls else "starttls" if has_account else "opportunistic"
    return SmtpRelay(
        name=DEFAULT_RELAY,
        host=parts.hostname,
        port=port or (SUBMISSIONS_PORT if is_tls else SUBMISSION_PORT),
        tls=tls,
        username=None if parts.username is None else unquote(parts.username),
        password=None if parts.password is None else unquote(parts.password),
        priority=FALLBACK_LAST,
    )


async def list_relays(db: Queries, *, vault: Vault | None = None) -> list[SmtpRelay]:
    """Return the relays in the order in which they are tried; with a vault, their passwords."""
    return [_to_relay(row, vault) for row in await db.fetch(LIST_RELAYS)]


async def put_relay(db: Connection, relay: SmtpRelay, *, vault: Vault, who: str) -> None:
    """Create or replace a relay; raises InvalidInput with the field."""
    _check(relay)
    sealed = None
    if relay.password is not None:
        sealed = vault.seal(relay.password.encode(), about=_about(relay.name))
    async with db.transaction():
        await db.execute(
            PUT_RELAY, relay.name, relay.host, relay.port, relay.tls, relay.username, sealed,
            relay.priority, relay.connections_max, relay.messages_per_connection_max,
            relay.idle_time, relay.is_enabled,
        )  # fmt: skip
        after = {"host": relay.host, "port": relay.port, "is_enabled": relay.is_enabled}
        await audit(db, who, "mail_relay.changed", subject=relay.name, after=after)


async def remove_relay(db: Connection, name: str, *, who: str) -> None:
    """Remove a relay; mails that name it wait until there is one of this name again."""
    async with db.transaction():
        if not await db.fetchval(REMOVE_RELAY, name):
            raise UnknownRelay(name)
        await audit(db, who, "mail_relay.removed", subject=name)


async def list_limits(db: Queries) -> list[MailLimit]:
    """Return all limits, by scope and name."""
    return [
        MailLimit(**cast("Mapping[str, object]", dict(row.items())))  # pyright: ignore[reportArgumentType]
        for row in await db.fetch(LIST_LIMITS)
    ]


async def put_limit(db: Connection, limit: MailLimit, *, who: str) -> None:
    """Create or replace a limit; one without any number is removed.

    Raises InvalidInput for a relay or a group that does not exist.
    """
    numbers = (limit.per_second, limit.per_minute, limit.per_hour, limit.per_day)
    subject = f"{limit.scope} {limit.name}"
    async with db.transaction():
        if all(each is None for each in numbers):
            await db.execute(REMOVE_LIMIT, limit.scope, limit.name)
        else:
            is_special = limit.name == "*" or (limit.scope, limit.name) == ("relay", DEFAULT_RELAY)
            if not is_special and not await db.fetchval(HAS_LIMITED, limit.scope, limit.name):
                raise InvalidInput("name", f"is not a {limit.scope} that exists")
            await db.execute(PUT_LIMIT, limit.scope, limit.name, *numbers)
        await audit(db, who, "mail_limit.changed", subject=subject, after={"limits": numbers})


def choose(relays: Sequence[SmtpRelay], named: str | None) -> Sequence[SmtpRelay]:
    """Return the relays that a mail may take, in their order; a named one has no fallback."""
    return [each for each in relays if each.is_enabled and named in (None, each.name)]


def _check(relay: SmtpRelay) -> None:
    if not NAME.fullmatch(relay.name) or relay.name == DEFAULT_RELAY:
        rule = f"must be 1 to 63 of a-z, 0-9, dot, dash and underscore, and not {DEFAULT_RELAY!r}"
        raise InvalidInput("name", rule)
    if not relay.host or not relay.host.isascii() or not relay.host.isprintable():
        raise InvalidInput("host", "is not a host name or an address")
    if not 1 <= relay.port <= 65_535:
        raise InvalidInput("port", "must be 1 to 65535")
    if (relay.username is None) != (relay.password is None):
        raise InvalidInput("password", "belongs to a username, and the other way round")
    if relay.username is not None and relay.tls == "opportunistic":
        raise InvalidInput("tls", "must be starttls or tls with an account, or none in clear text")
    if not 1 <= relay.connections_max <= 1_000:
        raise InvalidInput("connections_max", "must be 1 to 1000")
    if not 1 <= relay.messages_per_connection_max <= 100_000:
        raise InvalidInput("messages_per_connection_max", "must be 1 to 100000")
    if not timedelta(seconds=1) <= relay.idle_time <= timedelta(hours=1):
        raise InvalidInput("idle_seconds", "must be 1 to 3600")


def _to_relay(row: Row, vault: Vault | None) -> SmtpRelay:
    fields = dict(row.items())
    sealed = fields.pop("sealed_password")
    password, fault = None, None
    if sealed is not None and vault is not None:
        try:
            password = vault.open(sealed, about=_about(fields["name"])).decode()
        except SealBroken as broken:
            fault = str(broken)
    return SmtpRelay(**fields, password=password, fault=fault)


def _about(name: str) -> str:
    return f"mail relay {name}"
