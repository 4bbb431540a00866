"""Code sets: what each code of a rail means for an instruction, as rows that an operator changes.

The shipped sets are in code_sets/*.csv: facts with their source, in words of Penstock. The set
`http` applies to every rail, for answers that have no code of the rail.
"""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from importlib.resources import files
from typing import cast, get_args

from penstock.base.errors import InvalidInput
from penstock.domains.outbox.errors import UnknownCode
from penstock.domains.outbox.rails.name import check_name
from penstock.domains.outbox.rails.rail import CodeClass
from penstock.kernel.audit import audit
from penstock.postgres.pool import Connection, Queries
from penstock.postgres.statement import statement

LIST_CODES = statement(__package__, "list_codes.sql")
PUT_CODE = statement(__package__, "put_code.sql")
REMOVE_CODE = statement(__package__, "remove_code.sql")

CLASSES: tuple[CodeClass, ...] = get_args(CodeClass)
SHIPPED = ("http", "iso20022", "nacha", "simulator")
HTTP_SET = "http"
CODE_LENGTH_MAX = 64
TEXT_LENGTH_MAX = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """One code of a set. `meaning` is for people; only the class has an effect."""

    code_set: str
    code: str
    code_class: CodeClass
    meaning: str = ""
    source: str = ""
    updated_at: datetime | None = None


async def list_codes(db: Queries, code_set: str | None = None) -> list[Code]:
    """Return the codes of one set or of all, by set and code."""
    rows = await db.fetch(LIST_CODES, code_set)
    return [Code(**dict(row.items())) for row in rows]


async def put_code(db: Connection, code: Code, *, who: str) -> None:
    """Create or replace a code; it takes effect within a second. Raises InvalidInput."""
    _check(code)
    async with db.transaction():
        before = await db.fetchval(
            PUT_CODE, code.code_set, code.code, code.code_class, code.meaning, code.source
        )
        await audit(
            db,
            who,
            "outbox_code.changed",
            subject=f"{code.code_set} {code.code}",
            before=None if before is None else {"class": before},
            after={"class": code.code_class},
        )


async def remove_code(db: Connection, code_set: str, code: str, *, who: str) -> None:
    """Remove a code, which is unknown from then on; raises UnknownCode."""
    async with db.transaction():
        before = await db.fetchval(REMOVE_CODE, code_set, code)
        if before is None:
            raise UnknownCode(code_set, code)
        subject = f"{code_set} {code}"
        await audit(db, who, "outbox_code.removed", subject=subject, before={"class": before})


def shipped_codes() -> Iterator[Code]:
    """Return the codes that a new database has, by set and code."""
    for code_set in SHIPPED:
        table = files("penstock.domains.outbox.rails") / "code_sets" / f"{code_set}.csv"
        for row in csv.DictReader(table.read_text(encoding="utf-8").splitlines()):
            yield Code(
                code_set=code_set,
                code=row["code"],
                code_class=cast("CodeClass", row["class"]),
                meaning=row["meaning"],
                source=row["source"],
            )


def _check(code: Code) -> None:
    check_name("code_set", code.code_set)
    if not 1 <= len(code.code) <= CODE_LENGTH_MAX or not code.code.isprintable():
        raise InvalidInput("code", f"must be 1 to {CODE_LENGTH_MAX} printable characters")
    if code.code_class not in CLASSES:
        raise InvalidInput("class", f"must be one of {', '.join(CLASSES)}")
    for name, text in (("meaning", code.meaning), ("source", code.source)):
        if len(text) > TEXT_LENGTH_MAX:
            raise InvalidInput(name, f"must have at most {TEXT_LENGTH_MAX} characters")
