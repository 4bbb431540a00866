"""Rails: rows that an operator changes, and the adapters that carry them out in this process.

A row names its adapter: `http_json`, `simulator`, or an entry point of the group `penstock.rails`.
If this process lacks the adapter, or cannot open the secret, instructions of the rail wait.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from importlib.metadata import entry_points
from typing import Any, TypeAlias

import msgspec

from penstock.base.aio import outcome_of
from penstock.base.clock import boot_seconds
from penstock.base.errors import InvalidInput, SealBroken
from penstock.base.vault import Vault
from penstock.contract import Finding, Resources
from penstock.domains.outbox.errors import UnknownRail
from penstock.domains.outbox.lanes import LANE
from penstock.domains.outbox.rails.codes import HTTP_SET, list_codes
from penstock.domains.outbox.rails.destination import SCHEMES, DestinationScheme, prepare_scheme
from penstock.domains.outbox.rails.http_json import parse_config
from penstock.domains.outbox.rails.name import check_name
from penstock.domains.outbox.rails.rail import NO_RAIL, CodeClass, LoadedRail, Rail
from penstock.kernel import driver
from penstock.kernel.audit import audit
from penstock.postgres.pool import Connection, Pool, Queries, Row
from penstock.postgres.statement import statement

LIST_RAILS = statement(__package__, "list_rails.sql")
PUT_RAIL = statement(__package__, "put_rail.sql")
REMOVE_RAIL = statement(__package__, "remove_rail.sql")
READ_RESULT_SECRET = statement(__package__, "read_result_secret.sql")
COUNT_UNCOVERED = statement(__package__, "count_uncovered.sql")
COUNT_WITHOUT_RAIL = statement(__package__, "count_without_rail.sql")
READ_SCHEME = statement(__package__, "read_scheme.sql")
READ_VERSION = statement(__package__, "read_rail_version.sql")

GROUP = "penstock.rails"
HTTP_JSON = "http_json"
SIMULATOR = "simulator"
BUILT_IN_ADAPTERS = (HTTP_JSON, SIMULATOR)

TIMEOUT = timedelta(seconds=30)
TIMEOUT_MIN = timedelta(seconds=1)
TIMEOUT_MAX = timedelta(seconds=45)  # Less than the lease of the lane.
CONCURRENCY_MAX = 50
CONFIG_BYTES_MAX = 64 * 1024
HEADS_MAX = 1_000  # Waiting instructions that `penstock doctor` looks at.
CHECK_INTERVAL = timedelta(milliseconds=500)  # A change takes effect within a second.

# Makes a rail from the `config` of its row and its secret. Raises InvalidInput for a bad config.
AdapterFactory: TypeAlias = Callable[[Mapping[str, Any], str | None, Resources], Rail]


@dataclass(frozen=True, slots=True, kw_only=True)
class RailRow:
    """A rail as an operator sets it up. The secrets themselves are never shown."""

    rail_type: str
    adapter: str
    config: Mapping[str, Any] = field(default_factory=dict[str, Any])
    code_set: str
    destination_scheme: DestinationScheme = "any"
    timeout: timedelta = TIMEOUT
    concurrency_max: int = CONCURRENCY_MAX
    has_secret: bool = False
    has_result_secret: bool = False
    updated_at: datetime | None = None
    promises_since: datetime | None = None  # Calls of attempts claimed before are not covered.


async def list_rails(db: Queries) -> list[RailRow]:
    """Return the rails by their type."""
    return [_to_row(row) for row in await db.fetch(LIST_RAILS)]


async def put_rail(
    db: Connection,
    rail: RailRow,
    *,
    vault: Vault,
    who: str,
    secret: str | None = None,
    result_secret: str | None = None,
) -> None:
    """Create or replace a rail; a secret that is None stays as it is. Raises InvalidInput.

    `secret` is what the adapter presents to the rail, `result_secret` what the rail presents with
    its results.
    """
    config = _check(rail)
    async with db.transaction():
        await db.execute(
            PUT_RAIL, rail.rail_type, rail.adapter, config,
            _seal(vault, secret, _about(rail.rail_type)),
            _seal(vault, result_secret, _about_results(rail.rail_type)),
            rail.code_set, rail.destination_scheme, rail.timeout, rail.concurrency_max,
        )  # fmt: skip
        after = {
            "adapter": rail.adapter,
            "code_set": rail.code_set,
            "destination_scheme": rail.destination_scheme,
            "timeout_seconds": rail.timeout.total_seconds(),
            "concurrency_max": rail.concurrency_max,
            "secret_is_new": secret is not None,
            "result_secret_is_new": result_secret is not None,
        }
        await audit(db, who, "outbox_rail.changed", subject=rail.rail_type, after=after)


async def find_notice(db: Queries, rail: RailRow) -> str | None:
    """Return what a person should know who has just set up a rail.

    A name may be mistyped; and of what was called before the change, the promises prove nothing.
    """
    notices: list[str] = []
    if rail.adapter not in adapter_names():
        # Another process may have it.
        notices.append(f"no package of this installation offers the adapter {rail.adapter!r}")
    if not await list_codes(db, rail.code_set):
        notices.append(f"the set {rail.code_set!r} has no codes, so an answer's code is unknown")
    uncovered = await find_uncovered(db, rail.rail_type)
    return "; ".join(notices if uncovered is None else [*notices, uncovered]) or None


async def remove_rail(db: Connection, rail_type: str, *, who: str) -> str | None:
    """Remove a rail; its instructions wait until there is one of this type again.

    Returns what a person should know who has just removed it.
    """
    async with db.transaction():
        if await db.fetchval(REMOVE_RAIL, rail_type) is None:
            raise UnknownRail(rail_type)
        await audit(db, who, "outbox_rail.removed", subject=rail_type)
    return await find_uncovered(db, rail_type)


async def find_uncovered(db: Queries, rail_type: str) -> str | None:
    """Return how many instructions were called under another row of the rail, if there are any."""
    row = await db.fetchrow(COUNT_UNCOVERED, rail_type, LANE)
    assert row is not None, "the statement counts"
    if not row["unknown"] and not row["in_flight"]:
        return None
    return (
        f"{row['unknown']} instructions of {rail_type} are unknown and {row['in_flight']} in "
        "flight: neither a key nor an absence decides about a call that was made before the "
        "change, so a person has to"
    )


async def read_result_secret(db: Queries, rail_type: str, *, vault: Vault) -> str | None:
    """Return the secret that results of a rail need; None without a rail or a secret.

    Raises SealBroken if this process lacks the key.
    """
    sealed = await db.fetchval(READ_RESULT_SECRET, rail_type)
    return _unseal(vault, sealed, _about_results(rail_type))


async def read_scheme(pool: Pool, rail_type: str) -> DestinationScheme | None:
    """Return the scheme of a rail's destinations; None if there is no such rail."""
    return await pool.fetchval(READ_SCHEME, rail_type)


def read_scheme_blocking(connection: object, rail_type: str) -> DestinationScheme | None:
    """Do the same as `read_scheme` on the caller's blocking connection."""
    row = driver.fetch_row_blocking(connection, READ_SCHEME, (rail_type,), lane=LANE)
    return None if row is None else row[0]


async def check_rails(resources: Resources) -> Finding:
    """Name the rails that cannot be used, and what waits for one: for `penstock doctor`."""
    known = adapter_names()
    async with resources.pool.acquire() as db:
        rows = await db.fetch(LIST_RAILS)
        waiting = await db.fetch(COUNT_WITHOUT_RAIL, LANE, HEADS_MAX, NO_RAIL)
    faults = [_waiting_fault(row) for row in waiting]
    for row in rows:
        if row["adapter"] not in known:
            faults.append(f"{row['rail_type']} needs the adapter {row['adapter']!r}")
        try:
            _check_config(row)
            _open_secret(row, resources.vault)
            about = _about_results(row["rail_type"])
            _unseal(resources.vault, row["sealed_result_secret"], about)
        except SealBroken as broken:
            faults.append(str(broken))
        except InvalidInput as refused:
            faults.append(f"{row['rail_type']} cannot be used: {refused}")
    if faults:
        return Finding("fail", "outbox rails", "; ".join(faults))
    if not rows:
        return Finding("warn", "outbox rails", "none: instructions wait for a rail")
    return Finding("ok", "outbox rails", ", ".join(row["rail_type"] for row in rows))


def _check_config(row: Row) -> None:
    """Raise InvalidInput for a config that was stored before it would be refused."""
    if row["adapter"] == HTTP_JSON:
        parse_config(_decode_config(row))


def _waiting_fault(row: Row) -> str:
    because = (
        "a worker could not use it, and logged rail.load_failed"
        if row["is_known"]
        else "is missing"
    )
    return f"{row['instructions']} instructions wait for the rail {row['rail_type']}: {because}"


def adapter_names() -> frozenset[str]:
    """Return the names of the adapters that this installation has."""
    return frozenset(BUILT_IN_ADAPTERS) | entry_points(group=GROUP).names


@dataclass(slots=True, kw_only=True)
class CachedRails:
    """The rails of this process, read again within half a second of a change.

    `adapters` are the built-in ones. `may_simulate` says whether the simulator is allowed on this
    database. Faults are logged once for each change.
    """

    resources: Resources
    adapters: Mapping[str, AdapterFactory]
    may_simulate: Callable[[Queries], Awaitable[bool]]
    check_interval: timedelta = CHECK_INTERVAL
    _rails: Mapping[str, LoadedRail] = field(default_factory=dict[str, LoadedRail])
    _schemes: Mapping[str, DestinationScheme] = field(default_factory=dict[str, DestinationScheme])
    _version: object = None
    _checked_at: float | None = None
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def find(self, rail_type: str) -> LoadedRail | None:
        """Return a rail; None if it has no row, or cannot be used by this process."""
        await self._refresh_if_stale()
        return self._rails.get(rail_type)

    async def scheme_of(self, rail_type: str) -> DestinationScheme | None:
        """Return the scheme of a rail's destinations; None if it has no row.

        Also of a rail that this process cannot use: only workers may have its adapter.
        """
        await self._refresh_if_stale()
        return self._schemes.get(rail_type)

    async def _refresh_if_stale(self) -> None:
        if not self._is_fresh():
            async with self._lock:
                if not self._is_fresh():  # Another task may have read it meanwhile.
                    await self._refresh()

    def _is_fresh(self) -> bool:
        if self._checked_at is None:
            return False
        age = boot_seconds() - self._checked_at
        return age < self.check_interval.total_seconds()

    async def _refresh(self) -> None:
        # The loop's clock stops with the machine: after that, an old row would pass for a new one.
        started = boot_seconds()
        async with self.resources.pool.acquire() as db:
            # Before the rows: what changes in between is read again at the next check.
            version = await db.fetchval(READ_VERSION)
            if version != self._version:
                rows = await db.fetch(LIST_RAILS)
                self._rails = await self._load(db, rows)
                self._schemes = {row["rail_type"]: row["destination_scheme"] for row in rows}
                self._version = version
        self._checked_at = started

    async def _load(self, db: Connection, rows: Sequence[Row]) -> Mapping[str, LoadedRail]:
        codes: dict[str, dict[str, CodeClass]] = {}
        for each in await list_codes(db):
            codes.setdefault(each.code_set, {})[each.code] = each.code_class
        may_simulate = await self.may_simulate(db)
        loaded: dict[str, LoadedRail] = {}
        for row in rows:
            made = await outcome_of(self._make(row, may_simulate=may_simulate))
            if isinstance(made, Exception):
                # An adapter of another package may raise anything; other rails go on.
                reason = f"{type(made).__name__}: {made}"
                self.resources.log.error("rail.load_failed", name=row["rail_type"], reason=reason)
                continue
            loaded[row["rail_type"]] = LoadedRail(
                rail_type=row["rail_type"],
                rail=made,
                codes={**codes.get(HTTP_SET, {}), **codes.get(row["code_set"], {})},
                timeout=row["timeout"],
                concurrency_max=row["concurrency_max"],
                destination_scheme=row["destination_scheme"],
                promises_since=row["promises_since"],
            )
        return loaded

    async def _make(self, row: Row, *, may_simulate: bool) -> Rail:
        # In a thread: an import may take 200 ms, and other rails go on meanwhile. Before all else:
        # destinations are checked also where the rail cannot be used.
        await asyncio.to_thread(prepare_scheme, row["destination_scheme"])
        name = row["adapter"]
        if name == SIMULATOR and not may_simulate:
            reason = "is for the embedded database; elsewhere PENSTOCK_OUTBOX_SIMULATOR allows it"
            raise InvalidInput("adapter", f"{name} {reason}")
        factory = self.adapters.get(name) or await asyncio.to_thread(_load_adapter, name)
        config = _decode_config(row)
        return factory(config, _open_secret(row, self.resources.vault), self.resources)


def _load_adapter(name: str) -> AdapterFactory:
    match list(entry_points(group=GROUP, name=name)):
        case [point]:
            return point.load()
        case []:
            raise InvalidInput("adapter", f"no installed package offers {name!r} as {GROUP}")
        case points:
            values = ", ".join(sorted(point.value for point in points))
            raise InvalidInput("adapter", f"several packages offer {name!r}: {values}")


def _check(rail: RailRow) -> str:
    """Return the config as JSON; raises InvalidInput."""
    check_name("rail_type", rail.rail_type)
    check_name("adapter", rail.adapter)
    check_name("code_set", rail.code_set)
    if rail.destination_scheme not in SCHEMES:
        raise InvalidInput("destination_scheme", f"must be one of {', '.join(SCHEMES)}")
    if not TIMEOUT_MIN <= rail.timeout <= TIMEOUT_MAX:
        raise InvalidInput("timeout_seconds", "must be 1 to 45")
    if not 1 <= rail.concurrency_max <= 1_000:
        raise InvalidInput("concurrency_max", "must be 1 to 1000")
    if rail.adapter == HTTP_JSON:
        parse_config(rail.config)
    config = json.dumps(dict(rail.config))
    if len(config) > CONFIG_BYTES_MAX:
        raise InvalidInput("config", f"is larger than {CONFIG_BYTES_MAX} bytes")
    return config


def _to_row(row: Row) -> RailRow:
    fields = dict(row.items())
    fields["config"] = _decode_config(row)
    fields["has_secret"] = fields.pop("sealed_secret") is not None
    fields["has_result_secret"] = fields.pop("sealed_result_secret") is not None
    return RailRow(**fields)


def _decode_config(row: Row) -> dict[str, Any]:
    return msgspec.json.decode(row["config"], type=dict[str, Any])


def _seal(vault: Vault, secret: str | None, about: str) -> bytes | None:
    return None if secret is None else vault.seal(secret.encode(), about=about)


def _unseal(vault: Vault, sealed: bytes | None, about: str) -> str | None:
    return None if sealed is None else vault.open(sealed, about=about).decode()


def _open_secret(row: Row, vault: Vault) -> str | None:
    return _unseal(vault, row["sealed_secret"], _about(row["rail_type"]))


def _about(rail_type: str) -> str:
    return f"outbox rail {rail_type}"


def _about_results(rail_type: str) -> str:
    return f"results of outbox rail {rail_type}"
