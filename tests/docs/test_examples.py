"""What a how-to page shows is run, page by page and block by block, on a database of its own."""

import ast
import inspect
from collections.abc import Generator
from pathlib import Path
from typing import LiteralString, cast

import pytest

from penstock.base.settings import read_once
from penstock.kernel.lane import create_lane
from penstock.postgres.pool import connect
from tests.docs.pages import ROOT, Block, blocks_of, name_of

PAGES = [
    page
    for shelf in ("start", "howto", "reference")
    for page in sorted((ROOT / "docs" / shelf).glob("*.md"))
    if blocks_of(page, "python", "sql")
]
LANES = ("payments",)  # What SQL on the reference pages speaks of.


@pytest.fixture
def environment(dsn: str, monkeypatch: pytest.MonkeyPatch) -> Generator[str]:
    """Give the address of the test's own database as a reader would."""
    monkeypatch.setenv("PENSTOCK_DATABASE_URL", dsn)
    read_once.cache_clear()
    yield dsn
    read_once.cache_clear()


@pytest.fixture
async def lanes(dsn: str) -> None:
    """Make the lanes that a page takes for granted."""
    connection = await connect(dsn)
    for lane in LANES:
        await create_lane(connection, lane, who="test")
    await create_lane(connection, "penstock.mail", who="test", owner="mail")
    await create_lane(connection, "penstock.outbox", who="test", owner="outbox", ordering="per_key")
    await connection.close()


@pytest.mark.usefixtures("lanes")
@pytest.mark.parametrize("page", PAGES, ids=name_of)
async def test_what_a_page_shows_works(page: Path, environment: str) -> None:
    """Blocks of a page build on each other, as a reader would type them."""
    names: dict[str, object] = {"__name__": page.stem}
    for block in blocks_of(page, "python", "sql"):
        if block.language == "sql":
            await run_sql(block, environment)
        else:
            await run_python(block, names)


async def run_python(block: Block, names: dict[str, object]) -> None:
    """Run a block that may await at its top level."""
    code = compile(block.code, str(block), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    answer = eval(code, names)
    if inspect.isawaitable(answer):
        await answer


async def run_sql(block: Block, dsn: str) -> None:
    connection = await connect(dsn)
    await connection.execute(cast("LiteralString", block.code))
    await connection.close()
