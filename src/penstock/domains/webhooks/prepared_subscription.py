"""What one subscription needs to send, prepared once per version of it.

Versions are re-checked on every claim.
"""

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

import msgspec

from penstock.base.errors import InvalidInput, SealBroken
from penstock.base.vault import Vault
from penstock.domains.webhooks.secret import read_secret
from penstock.domains.webhooks.sign import Signer
from penstock.limits.gate import Rules
from penstock.postgres.pool import Queries, Row
from penstock.postgres.statement import statement

READ_PREPARED = statement(__package__, "read_prepared_subscriptions.sql")

# A permit must outlive the longest call, or it would expire and be given to another.
PERMIT_TTL = timedelta(seconds=30)
PERMIT_MARGIN = timedelta(seconds=5)
NEVER_AT = datetime(9999, 1, 1, tzinfo=UTC)

Headers = Sequence[tuple[str, str]]


class PostResponse(Protocol):
    """What an endpoint has answered; `body` is as much of it as we were ready to take."""

    @property
    def status(self) -> int: ...
    @property
    def body(self) -> bytes: ...
    def header(self, name: str) -> str | None: ...


class Poster(Protocol):
    """Sends to URLs that users configured, within the egress rules."""

    def prepare(self, url: str, headers: Headers) -> Any:
        """Return a route; raises InvalidInput for a URL or a header that cannot be."""
        ...

    def post(
        self, route: Any, headers: bytes, body: bytes, *, timeout: float
    ) -> Awaitable[PostResponse]:
        """Send, with these header lines besides the route's; raises CallFailed.

        Its kind is `refused_address` if this process may not reach the address.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedSubscription:
    """One version of a subscription, ready to send. Without a `route` there is a `fault`.

    It is sealed when this process lacks the key to its secrets: not the subscriber's fault.
    """

    number: int
    version: int
    subscription_id: str
    state: str
    rules: Rules
    timeout: float
    retry_schedule: Sequence[timedelta] | None
    signer: Signer | None = field(repr=False)
    route: Any = field(repr=False)
    fault: str | None
    is_sealed: bool
    stale_at: datetime  # A secret retires then.


async def read_prepared(
    db: Queries, numbers: Sequence[int], *, vault: Vault, poster: Poster
) -> Mapping[int, PreparedSubscription]:
    """Return subscriptions, prepared as they are now, by their number."""
    rows = await db.fetch(READ_PREPARED, list(numbers))
    return {row["subscription_no"]: _prepare(row, vault, poster) for row in rows}


def _prepare(row: Row, vault: Vault, poster: Poster) -> PreparedSubscription:
    signer = route = fault = None
    is_sealed = False
    try:
        signer = _signer(row, vault)
        route = poster.prepare(row["url"], _headers(row, vault))
    except InvalidInput as refused:
        # What was sound when it was stored may be refused by a later release.
        fault = str(refused)
    except SealBroken as broken:
        fault, is_sealed = str(broken), True
    timeout: timedelta = row["timeout"]
    return PreparedSubscription(
        number=row["subscription_no"],
        version=row["version"],
        subscription_id=row["subscription_id"],
        state=row["state"],
        rules=Rules(
            rate=row["rate_limit"],
            concurrency=row["concurrency"],
            permit_ttl=max(PERMIT_TTL, timeout + PERMIT_MARGIN),
        ),
        timeout=timeout.total_seconds(),
        retry_schedule=row["retry_schedule"],
        signer=signer,
        route=route,
        fault=fault,
        is_sealed=is_sealed,
        stale_at=row["stale_at"] or NEVER_AT,
    )


def _signer(row: Row, vault: Vault) -> Signer:
    texts = [
        vault.open(sealed, about=secret_of(row["subscription_id"])).decode()
        for sealed in row["secrets"]
    ]
    return Signer(row["profile"], [read_secret(text, row["profile"]) for text in texts])


def _headers(row: Row, vault: Vault) -> Headers:
    own = (("Content-Type", "application/json"), ("User-Agent", "Penstock"))
    if row["sealed_headers"] is None:
        return own
    text = vault.open(row["sealed_headers"], about=headers_of(row["subscription_id"]))
    given: dict[str, str] = msgspec.json.decode(text, type=dict[str, str])
    replaced = {name.lower() for name in given}
    return (*(pair for pair in own if pair[0].lower() not in replaced), *given.items())


def secret_of(subscription_id: str) -> str:
    """Name what a sealed secret is about."""
    return f"webhooks.secret:{subscription_id}"


def headers_of(subscription_id: str) -> str:
    """Name what sealed headers are about."""
    return f"webhooks.headers:{subscription_id}"
