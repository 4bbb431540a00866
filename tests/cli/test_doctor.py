"""`penstock doctor` and the checks of domains: each failure is named, and the others still run."""

from collections.abc import Callable
from pathlib import Path
from typing import LiteralString, cast

import pytest

from penstock.base.settings import read_once
from penstock.postgres.pool import Pool
from tests.cli.conftest import Cli
from tests.distribution import install_domain

Offer = Callable[..., None]

CODE = """
from penstock.base.errors import CallFailed
from penstock.contract import Domain, Finding
from pydantic_settings import BaseSettings, SettingsConfigDict


class ParcelSettings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="DEPOT_")
    lanes: int = 1


async def check_depot(resources):
    {body}


async def check_stamps(resources):
    return Finding("ok", "stamps", "enough")


DOMAIN = Domain(
    name="parcels", settings=[ParcelSettings], checks=[check_depot, check_stamps]
)
"""


@pytest.fixture
def offer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Offer:
    """Install a domain whose first check has this body, and choose it."""
    monkeypatch.syspath_prepend(tmp_path)

    def install(module: str, body: str) -> None:
        install_domain(tmp_path, "parcels", module=module, code=CODE.format(body=body))
        monkeypatch.setenv("PENSTOCK_DOMAINS", "parcels webhooks")
        read_once.cache_clear()

    return install


FAILURES = {
    "an error of Penstock": (
        "parcels_unreachable",
        "raise CallFailed('connect', 'the depot refuses')",
        "fail  parcels depot   connect: the depot refuses",
    ),
    "a failed statement": (
        "parcels_without_table",
        "await resources.pool.fetch('SELECT 1 FROM parcels')",
        "fail  parcels depot   unexpected UndefinedTableError in ",
    ),
    "a setting that it reads": (
        "parcels_with_setting",
        "return Finding('ok', 'depot', str(resources.section(ParcelSettings).lanes))",
        "fail  parcels depot   DEPOT_LANES: input should be a valid integer",
    ),
}


@pytest.mark.parametrize(("module", "body", "line"), FAILURES.values(), ids=FAILURES)
def test_a_check_that_fails_is_named_and_the_others_still_run(
    cli: Cli, offer: Offer, monkeypatch: pytest.MonkeyPatch, *, module: str, body: str, line: str
) -> None:
    """Reported as a failure of the database, it would send a person to the wrong place."""
    monkeypatch.setenv("DEPOT_LANES", "many" if "section" in body else "2")
    offer(module, body)

    ended = cli("doctor")

    assert ended.code == 1
    lines = ended.out.splitlines()
    assert [each for each in lines if each.startswith(line)], ended.out
    assert [each for each in lines if each.startswith("ok    stamps ")]
    assert [each for each in lines if each.startswith("ok    secrets ")]
    assert not [each for each in lines if each.startswith("fail  database")]


def test_a_wrong_setting_of_a_domain_is_found(
    cli: Cli, offer: Offer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every process would refuse to start with it."""
    monkeypatch.setenv("DEPOT_LANES", "many")
    offer("parcels_misconfigured", "return Finding('ok', 'depot', 'open')")

    ended = cli("doctor")

    assert ended.code == 1
    lines = ended.out.splitlines()
    (found,) = [each for each in lines if each.startswith("fail")]
    assert found.startswith("fail  settings        DEPOT_LANES: input should be a valid integer")
    assert [each for each in lines if each.startswith("ok    depot ")]


async def test_a_server_that_loses_commits_in_a_crash_is_named(cli: Cli, db: Pool) -> None:
    """The server of the tests runs without fsync; this database also without waiting commits."""
    name = await db.fetchval("SELECT quote_ident(current_database())")
    before = cli("doctor").out
    await db.execute(cast("LiteralString", f"ALTER DATABASE {name} SET synchronous_commit = off"))

    after = cli("doctor").out

    (unsafe,) = [line for line in before.splitlines() if " durability " in line]
    assert unsafe.startswith("warn")
    assert "fsync = off, full_page_writes = off: " in unsafe
    (more,) = [line for line in after.splitlines() if " durability " in line]
    assert "fsync = off, full_page_writes = off, synchronous_commit = off: " in more
    assert "sessions of Penstock set synchronous_commit to on" in more
