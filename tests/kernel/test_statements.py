"""Every statement of the kernel is valid against the migrated schema."""

import importlib
import re
from pathlib import Path
from typing import LiteralString, cast

import pytest

from penstock import kernel
from penstock.kernel.enqueue import CREATE_STAGING
from penstock.postgres.pool import Connection

FOLDER = Path(str(kernel.__path__[0]))
STATEMENTS = sorted(FOLDER.glob("sql/*.sql"))

each_statement = pytest.mark.parametrize("path", STATEMENTS, ids=lambda path: path.stem)


@pytest.mark.covers("C11")
async def test_every_statement_prepares(db: Connection) -> None:
    """A misspelt column fails here and not when an operator needs the statement."""
    await db.execute(CREATE_STAGING)

    for path in STATEMENTS:
        await db.prepare(cast("LiteralString", path.read_text(encoding="utf-8")))


@each_statement
def test_a_statement_is_a_constant_of_its_own_name(path: Path) -> None:
    """Searching for claim.sql, CLAIM or claim finds the same thing."""
    (module,) = [
        each for each in FOLDER.glob("*.py") if f'"{path.name}"' in each.read_text(encoding="utf-8")
    ]

    loaded = importlib.import_module(f"penstock.kernel.{module.stem}")

    assert getattr(loaded, path.stem.upper()) == path.read_text(encoding="utf-8")


@each_statement
def test_a_file_holds_one_statement(path: Path) -> None:
    lines = [line.partition("--")[0] for line in path.read_text(encoding="utf-8").splitlines()]

    assert re.findall(r";", "\n".join(lines)) == [";"]


async def test_only_a_lane_s_policy_has_a_foreign_key(db: Connection) -> None:
    """On hot tables a foreign key would lock other rows; a policy changes rarely."""
    keys = await db.fetch("SELECT conname FROM pg_constraint WHERE contype = 'f'")

    assert [key["conname"] for key in keys] == ["slot_pool_exists"]


async def test_every_instant_has_a_zone(db: Connection) -> None:
    naive = await db.fetch(
        "SELECT table_name, column_name FROM information_schema.columns "
        "WHERE table_schema = 'penstock' AND data_type = 'timestamp without time zone'"
    )

    assert naive == []


async def test_the_only_index_of_the_hot_table_is_the_order_of_the_claim(db: Connection) -> None:
    indexes = await db.fetch("SELECT indexdef FROM pg_indexes WHERE tablename = 'ready'")

    assert [row["indexdef"].partition(" USING ")[2] for row in indexes] == [
        "btree (lane_id, due_at, id)"
    ]
