"""Rails, codes and the simulator's ledger over HTTP, as types. Input refuses unknown fields."""

from datetime import datetime, timedelta
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType, field

from penstock.domains.outbox.rails import codes, registry
from penstock.domains.outbox.rails.destination import DestinationScheme
from penstock.domains.outbox.rails.rail import CodeClass
from penstock.domains.outbox.rails.simulator.entry import Entry, Totals

Name = Annotated[str, Meta(min_length=1, max_length=63)]
CodeText = Annotated[str, Meta(min_length=1, max_length=64)]
ShortText = Annotated[str, Meta(max_length=200)]
Secret = Annotated[str, Meta(min_length=1, max_length=4_096)]
Notice = Annotated[
    str | UnsetType,
    Meta(description="Only in the answer to a change: a mistyped name, or calls in doubt."),
]


class RailRef(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which rail."""

    rail_type: Name


class NewRail(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A rail to set up. A secret that is left out stays as it is."""

    adapter: Name
    code_set: Name
    config: dict[str, Any] = {}
    destination_scheme: DestinationScheme = "any"
    timeout_seconds: Annotated[float, Meta(ge=1, le=45)] = 30
    concurrency_max: Annotated[int, Meta(ge=1, le=1_000)] = registry.CONCURRENCY_MAX
    secret: Secret | None = None
    result_secret: Secret | None = None


class Rail(Struct, frozen=True, kw_only=True):
    """A rail without its secrets."""

    rail_type: str
    adapter: str
    config: dict[str, Any]
    code_set: str
    destination_scheme: DestinationScheme
    timeout_seconds: float
    concurrency_max: int
    has_secret: bool
    has_result_secret: bool
    updated_at: datetime | None
    promises_since: Annotated[
        datetime | None,
        Meta(description="What the rail promises counts for attempts claimed from then on."),
    ]
    notice: Notice = UNSET


class RemovedRail(Struct, frozen=True, kw_only=True):
    """A rail that is gone."""

    rail_type: str
    notice: Notice = UNSET


class Rails(Struct, frozen=True, kw_only=True):
    """All rails."""

    rails: list[Rail]


class CodeRef(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which code."""

    code_set: Name
    code: CodeText


class CodeQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which set; without one, all."""

    code_set: Name | None = None


class NewCode(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a code means for an instruction."""

    code_class: CodeClass = field(name="class")
    meaning: ShortText = ""
    source: ShortText = ""


class Code(Struct, frozen=True, kw_only=True):
    """A code and what it means for an instruction."""

    code_set: str
    code: str
    code_class: CodeClass = field(name="class")
    meaning: str
    source: str
    updated_at: datetime | None


class Codes(Struct, frozen=True, kw_only=True):
    """The codes of one set or of all."""

    codes: list[Code]


class LedgerQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which page of the ledger; `after` is the last `payment_no` of the page before."""

    after: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 1_000


class LedgerPage(Struct, frozen=True, kw_only=True):
    """What the simulator was asked to pay, and how often it paid."""

    payments: list[Entry]
    totals: Totals


def to_row(rail_type: str, given: NewRail) -> registry.RailRow:
    """Return a rail as it was asked for."""
    return registry.RailRow(
        rail_type=rail_type,
        adapter=given.adapter,
        config=given.config,
        code_set=given.code_set,
        destination_scheme=given.destination_scheme,
        timeout=timedelta(seconds=given.timeout_seconds),
        concurrency_max=given.concurrency_max,
    )


def to_wire_rail(row: registry.RailRow, notice: str | None = None) -> Rail:
    """Return a rail as callers see it."""
    return Rail(
        rail_type=row.rail_type,
        adapter=row.adapter,
        config=dict(row.config),
        code_set=row.code_set,
        destination_scheme=row.destination_scheme,
        timeout_seconds=row.timeout.total_seconds(),
        concurrency_max=row.concurrency_max,
        has_secret=row.has_secret,
        has_result_secret=row.has_result_secret,
        updated_at=row.updated_at,
        promises_since=row.promises_since,
        notice=notice or UNSET,
    )


def to_wire_code(code: codes.Code) -> Code:
    """Return a code as callers see it."""
    return Code(
        code_set=code.code_set,
        code=code.code,
        code_class=code.code_class,
        meaning=code.meaning,
        source=code.source,
        updated_at=code.updated_at,
    )
