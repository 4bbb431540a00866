"""Packages that ship migrations and functions, written for one test, and a database without any."""

import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from penstock.postgres.pool import Connection, connect
from tests.migration.package import MigrationPackage


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MigrationPackage:
    """A package with two steps and no functions."""
    monkeypatch.syspath_prepend(str(tmp_path))
    name = f"package_{abs(hash(tmp_path))}"
    assert name not in sys.modules
    package = MigrationPackage(tmp_path, name)
    package.write("0001_start.sql", "CREATE TABLE apple (id int); INSERT INTO apple VALUES (1);")
    package.write("0002_grow.sql", "INSERT INTO apple VALUES (2);")
    return package


@pytest.fixture
async def connection(empty_dsn: str) -> AsyncGenerator[Connection]:
    """A connection to a database without our schema."""
    opened = await connect(empty_dsn)
    yield opened
    await opened.close()
