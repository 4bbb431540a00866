"""Seal secrets and headers again after a change of the key. Receivers notice nothing of it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import LiteralString

from penstock.base.errors import SealBroken
from penstock.base.vault import MARK_BYTES, Vault
from penstock.domains.webhooks.prepared_subscription import headers_of, secret_of
from penstock.kernel.audit import audit
from penstock.postgres.pool import Connection, Queries, Row
from penstock.postgres.statement import statement

COUNT_SEALS = statement(__package__, "count_seals.sql")
LIST_OLD_SECRETS = statement(__package__, "list_old_secrets.sql")
LIST_OLD_HEADERS = statement(__package__, "list_old_headers.sql")
RESEAL_SECRETS = statement(__package__, "reseal_secrets.sql")
RESEAL_HEADERS = statement(__package__, "reseal_headers.sql")

BATCH = 500  # Rows that are locked at once, for a moment.


@dataclass(frozen=True, slots=True, kw_only=True)
class Seals:
    """How many secrets and sets of headers bear one mark; those that nobody needs are left out."""

    mark: bytes
    secrets: int
    headers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Resealed:
    """What was sealed again, and the subscriptions with something that no key here opens."""

    secrets: int
    headers: int
    unopened: list[str]


@dataclass(frozen=True, slots=True)
class _Store:
    """Where one sort of seals is kept."""

    listing: LiteralString
    replacing: LiteralString
    about: Callable[[str], str]  # What a seal is bound to, from the subscription's id.


SECRETS = _Store(LIST_OLD_SECRETS, RESEAL_SECRETS, secret_of)
HEADERS = _Store(LIST_OLD_HEADERS, RESEAL_HEADERS, headers_of)


async def count_seals(db: Queries) -> list[Seals]:
    """Return which keys are needed, and for how much."""
    return [
        Seals(mark=row["mark"], secrets=row["secrets"], headers=row["headers"])
        for row in await db.fetch(COUNT_SEALS, MARK_BYTES)
    ]


async def reseal(
    db: Connection, vault: Vault, *, who: str, on_step: Callable[[int], None]
) -> Resealed:
    """Seal with the current key what another one has sealed; `on_step` is called after each batch.

    May be stopped and repeated, while everything runs. Raises BadSetting where there is no key.
    """
    secrets, shut = await _reseal(db, vault, SECRETS, on_step=on_step)
    headers, also_shut = await _reseal(db, vault, HEADERS, on_step=on_step)
    if secrets or headers:
        done = {"secrets": secrets, "headers": headers}
        await audit(db, who, "subscriptions.resealed", subject="subscriptions", after=done)
    unopened = list(dict.fromkeys(shut + also_shut))
    return Resealed(secrets=secrets, headers=headers, unopened=unopened)


async def _reseal(
    db: Connection, vault: Vault, store: _Store, *, on_step: Callable[[int], None]
) -> tuple[int, list[str]]:
    """Return how many seals were replaced, and whose could not be opened."""
    replaced, shut, after = 0, list[str](), 0
    while rows := await db.fetch(store.listing, vault.mark, after, BATCH):
        after = rows[-1]["number"]
        resealed: list[tuple[int, bytes, bytes]] = []
        for row in rows:
            try:
                sealed = _anew(row, vault, about=store.about(row["subscription_id"]))
            except SealBroken:
                shut.append(row["subscription_id"])
            else:
                resealed.append((row["number"], row["sealed"], sealed))
        numbers, before, fresh = zip(*resealed, strict=True) if resealed else ((), (), ())
        replaced += len(await db.fetch(store.replacing, numbers, before, fresh))
        on_step(len(rows))
    return replaced, shut


def _anew(row: Row, vault: Vault, *, about: str) -> bytes:
    return vault.seal(vault.open(row["sealed"], about=about), about=about)
