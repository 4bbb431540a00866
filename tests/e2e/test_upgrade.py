"""An upgrade with two releases of one domain as real processes, step by step as the page says.

The releases differ in a column: the second one writes `subject` where the first one writes `title`.
"""

import json
import os
import re
from collections.abc import AsyncGenerator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import pytest

from penstock.kernel.enqueue import enqueue
from penstock.kernel.inspect import balance
from penstock.kernel.item import NewItem
from penstock.postgres.functions import checksum
from penstock.postgres.pool import Pool, open_pool
from tests.docs.pages import ROOT, read
from tests.e2e.command import Command, penstock

LANE = "letters"

DOMAIN = """
from penstock.contract import Domain, Kind, Resources, Runtime

INSERT = "INSERT INTO letters.sent ({column}) VALUES ($1)"

def build(resources: Resources) -> Runtime:
    async def send(item):
        await resources.pool.execute(INSERT, str(item.payload))
        print("{release} sent", item.payload, flush=True)
    return Runtime(kinds=[Kind(lane="letters", payload_type=int, handle=send)])

LETTERS = Domain(name="letters", build=build, migration_packages=["letters"])
"""
START = "CREATE SCHEMA letters; CREATE TABLE letters.sent (title text);"
PRE = "ALTER TABLE letters.sent ADD COLUMN subject text;"
POST = "ALTER TABLE letters.sent DROP COLUMN title;"
COUNT = """
CREATE OR REPLACE FUNCTION letters.count_sent() RETURNS bigint
LANGUAGE sql AS $$ SELECT count({column}) FROM letters.sent $$;
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """An installed release of the domain, on one database."""

    folder: Path
    dsn: str

    @property
    def environment(self) -> dict[str, str]:
        path = os.pathsep.join([str(self.folder), os.environ.get("PYTHONPATH", str(ROOT / "src"))])
        return {
            "PENSTOCK_DATABASE_URL": self.dsn,
            "PENSTOCK_DOMAINS": "letters",
            "PYTHONPATH": path,
        }

    def run(self, *arguments: str) -> tuple[int, str]:
        """Run `penstock …` to its end; return the exit code and what was printed."""
        with penstock(*arguments, folder=self.folder, environment=self.environment) as command:
            return command.wait(), "\n".join(command.lines)

    def worker(self, *options: str) -> AbstractContextManager[Command]:
        """Run a worker while the body runs."""
        return penstock("worker", *options, folder=self.folder, environment=self.environment)


def install(folder: Path, *, release: str, column: str, texts: list[str]) -> None:
    """Write a release of the package, with its entry point and as many texts of its function."""
    package = folder / "letters"
    (package / "migrations").mkdir(parents=True)
    (package / "functions").mkdir()
    (package / "__init__.py").write_text("")
    domain = DOMAIN.replace("{column}", column).replace("{release}", release)
    (package / "domain.py").write_text(domain)
    (package / "migrations" / "0001_start.sql").write_text(START)
    hashes = [checksum(COUNT.replace("{column}", each)) for each in texts]
    (package / "functions" / "history.json").write_text(json.dumps({"count_sent": hashes}))
    (package / "functions" / "count_sent.sql").write_text(COUNT.replace("{column}", column))
    metadata = folder / f"letters-{release}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: letters\nVersion: {release}\n"
    )
    (metadata / "entry_points.txt").write_text(
        "[penstock.domains]\nletters = letters.domain:LETTERS\n"
    )


@pytest.fixture
def old(empty_dsn: str, tmp_path: Path) -> Release:
    install(tmp_path / "old", release="1.0", column="title", texts=["title"])
    return Release(folder=tmp_path / "old", dsn=empty_dsn)


@pytest.fixture
def new(empty_dsn: str, tmp_path: Path) -> Release:
    install(tmp_path / "new", release="2.0", column="subject", texts=["title", "subject"])
    steps = tmp_path / "new" / "letters" / "migrations"
    (steps / "0002_add_subject.sql").write_text(PRE)
    (steps / "0003_post_drop_title.sql").write_text(POST)
    return Release(folder=tmp_path / "new", dsn=empty_dsn)


@pytest.fixture
async def pool(empty_dsn: str) -> AsyncGenerator[Pool]:
    opened = await open_pool(empty_dsn, min_size=1, max_size=2)
    yield opened
    opened.terminate()


@dataclass(slots=True)
class Letters:
    """Items of the lane, each expected to be handled by one worker."""

    pool: Pool
    sent: int = 0

    async def reach(self, worker: Command, release: str) -> None:
        """Enqueue one and return when the worker has handled it."""
        self.sent += 1
        async with self.pool.acquire() as db:
            await enqueue(db, LANE, NewItem(payload=self.sent))
        worker.wait_for(rf"{re.escape(release)} sent {self.sent}$")

    async def are_all_done(self) -> bool:
        counted = await balance(self.pool)
        return (counted.accepted, counted.done) == (self.sent, self.sent)


async def test_an_upgrade_stops_nothing_and_can_be_rolled_back(
    old: Release, new: Release, pool: Pool
) -> None:
    letters = Letters(pool)
    with old.worker() as first:
        first.wait_for("worker.started")
        await letters.reach(first, "1.0")

        # Step 1: see what will be applied.
        assert new.run("migrate", "--check") == (
            1,
            "missing letters/0002_add_subject\nmissing letters/functions/count_sent",
        )

        # Step 2: apply it. The previous release continues, says what it does not know, and may
        # start again.
        code, said = new.run("migrate")
        assert (code, said.splitlines()[-1]) == (0, "applied letters/functions/count_sent")
        await letters.reach(first, "1.0")
        says_that_the_schema_is_newer(old)
        assert first.stop() == 0
    with old.worker() as again, new.worker() as replaced:
        again.wait_for("worker.started")
        replaced.wait_for("worker.started")

        # Step 3: replace the processes.
        assert again.stop() == 0
        await letters.reach(replaced, "2.0")
        assert replaced.stop() == 0

    # Roll back, and upgrade again.
    with old.worker() as rolled_back:
        await letters.reach(rolled_back, "1.0")
        assert rolled_back.stop() == 0
    assert new.run("migrate", "--check") == (0, "the schema is up to date")
    with new.worker() as upgraded:
        await letters.reach(upgraded, "2.0")

        # Step 4: the post steps.
        code, said = new.run("migrate", "--post")
        assert (code, said.splitlines()[-1]) == (0, "applied letters/0003_post_drop_title")
        await letters.reach(upgraded, "2.0")
        cannot_start(old)
        assert upgraded.stop() == 0

    assert await letters.are_all_done()


def says_that_the_schema_is_newer(release: Release) -> None:
    code, said = release.run("migrate", "--check")
    assert code == 0
    assert "newer letters/0002_add_subject\nnewer letters/functions/count_sent\n" in said
    assert "the schema is newer than this release" in said
    assert "up to date" not in said

    code, said = release.run("migrate", "--check", "--json")
    assert json.loads(said) == {
        "missing": [],
        "newer": ["letters/0002_add_subject", "letters/functions/count_sent"],
    }

    code, said = release.run("doctor")
    assert code == 0
    assert re.search(r"^warn +schema +.* newer .* letters/0002_add_subject", said, re.MULTILINE)


def cannot_start(release: Release) -> None:
    """Every command names the step, so that a person knows what to install."""
    reason = "letters/0003_post_drop_title: a newer release has applied it"
    for arguments in (
        ("worker",),
        ("worker", "--no-migrate"),
        ("migrate",),
        ("migrate", "--check"),
    ):
        code, said = release.run(*arguments)
        assert (code, reason in said) == (1, True), said
    code, said = release.run("doctor")
    assert code == 1
    assert re.search(rf"^fail +schema +.*{reason}", said, re.MULTILINE)


def test_the_page_shows_these_commands() -> None:
    page = read("docs/howto/run-in-production.md")
    section = page.partition("## Upgrade without a stop")[2].partition("\n## ")[0]

    assert re.findall(r"^ +(penstock .+)$", section, re.MULTILINE) == [
        "penstock migrate --check",
        "penstock migrate",
        "penstock migrate --post",
    ]
