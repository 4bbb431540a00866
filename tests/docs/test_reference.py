"""The reference is complete: what the code has, the pages list, and nothing else."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from penstock.cli.lane import policy
from penstock.cli.root import command_line
from penstock.console.output import text
from penstock.kernel.lane import FIELDS, create_lane
from penstock.postgres.pool import Pool
from tests.docs.pages import ROOT, cells_of, read
from tools.reference.__main__ import FOLDER, renew
from tools.reference.log_events import logged_events

# `noun.past_verb`, with the irregular verbs that are used.
PAST = re.compile(r"\w+\.(\w+ed|became_unknown|cut_off|fell_back|found|kept|lost|overran)")


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    """Return a folder with a copy of the reference pages."""
    shutil.copytree(ROOT / FOLDER, tmp_path / FOLDER)
    return tmp_path


def test_pages_are_what_the_code_generates() -> None:
    """What is not in the reference is used by nobody; `make docs` writes what is missing."""
    run = subprocess.run(
        [sys.executable, "-m", "tools.reference", "--check"],
        cwd=ROOT,
        env=os.environ | {"PENSTOCK_DOMAINS": "slots"},  # What this process runs does not matter.
        capture_output=True,
        text=True,
        check=False,
    )

    assert (run.stderr, run.returncode) == ("", 0)


def test_a_page_that_differs_is_named_and_written_again(pages: Path) -> None:
    page = pages / FOLDER / "settings.md"
    right = page.read_text(encoding="utf-8")
    page.write_text(right.replace("| `8080` |", "| `8081` |"), encoding="utf-8")

    found = renew(pages, "settings.md", is_check=True)
    repaired = renew(pages, "settings.md", is_check=False)

    assert found == f"{FOLDER}/settings.md: differs from the code; run `make docs`"
    assert repaired is None
    assert page.read_text(encoding="utf-8") == right


def test_hand_written_text_around_a_block_stays(pages: Path) -> None:
    page = pages / FOLDER / "settings.md"
    longer = page.read_text(encoding="utf-8") + "\nMore advice.\n"
    page.write_text(longer, encoding="utf-8")

    assert renew(pages, "settings.md", is_check=False) is None
    assert page.read_text(encoding="utf-8") == longer


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (("KafkaSettings", "KafkaOptions"), "blocks that nothing generates: KafkaOptions"),
        (("generated: KafkaSettings", "KafkaSettings"), "no block for: KafkaSettings"),
    ],
)
def test_a_block_without_a_source_or_without_a_place_is_refused(
    pages: Path, change: tuple[str, str], problem: str
) -> None:
    """A misspelled marker would leave its block as it is for ever."""
    page = pages / FOLDER / "settings.md"
    page.write_text(page.read_text(encoding="utf-8").replace(*change), encoding="utf-8")

    assert (
        renew(pages, "settings.md", is_check=False)
        == f"{FOLDER}/settings.md: the page has {problem}"
    )


def test_a_log_event_without_a_meaning_is_refused(pages: Path) -> None:
    """A person who is woken by a log line must find out what it means."""
    page = pages / FOLDER / "log-events.md"
    lines = page.read_text(encoding="utf-8").splitlines(keepends=True)
    page.write_text("".join(each for each in lines if "`lease.lost`" not in each), encoding="utf-8")

    problem = renew(pages, "log-events.md", is_check=False)

    assert problem is not None
    assert problem.endswith(": lease.lost")


def test_log_events_say_what_has_happened() -> None:
    """One form for all: who searches for an event need not guess its tense."""
    events = {event for event, _ in logged_events(ROOT / "src" / "penstock")}

    others = {event for event in events if not PAST.fullmatch(event)}

    assert others == set()


def test_both_names_of_an_option_that_is_on_or_off_are_listed() -> None:
    """A person who has turned something on looks for the name that turns it off."""
    page = read("docs/reference/cli.md")

    listed = {
        name: f"| {' / '.join(f'`{each}`' for each in name)} |" in page for name in switches()
    }

    assert ("--refuse-duplicates", "--allow-duplicates") in listed
    assert [name for name, is_listed in listed.items() if not is_listed] == []


def switches() -> set[tuple[str, str]]:
    """Return the options of all commands that have a second name, which says no."""
    commands: list[click.Command] = [command_line()]
    found: set[tuple[str, str]] = set()
    while commands:
        command = commands.pop()
        if isinstance(command, click.Group):
            commands += command.commands.values()
        found |= {(each.opts[0], no) for each in command.params for no in each.secondary_opts}
    return found


async def test_every_field_of_a_policy_has_an_entry_with_its_default(db: Pool) -> None:
    async with db.acquire() as connection:
        lane = await create_lane(connection, "plain", who="test")

    listed = cells_of(read("docs/reference/lane-policy.md"))

    defaults = {name: text(value) for name, value in policy(lane).items() if name in FIELDS}
    assert {name: cells[0] for name, cells in listed.items()} == defaults


async def test_every_table_has_an_entry_with_its_columns(db: Pool) -> None:
    tables, _, _ = read("docs/reference/tables.md").partition("## States")
    listed = {name: set(cells[0].split(", ")) for name, cells in cells_of(tables).items()}

    rows = await db.fetch(
        """
        SELECT c.relname, array_agg(a.attname::text) AS columns
        FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid
        WHERE c.relnamespace = 'penstock'::regnamespace AND c.relkind IN ('r', 'p')
            AND NOT c.relispartition AND a.attnum > 0 AND NOT a.attisdropped
        GROUP BY c.relname
        """
    )
    stored = {row["relname"]: {f"`{column}`" for column in row["columns"]} for row in rows}
    summed_up = {f"`{field}`" for field in FIELDS}
    stored["lane"] = stored["lane"] - summed_up | {"the [policy](lane-policy.md)"}
    assert listed == stored


async def test_every_function_has_an_entry(db: Pool) -> None:
    page = read("docs/reference/sql.md")

    rows = await db.fetch(
        "SELECT proname FROM pg_proc WHERE pronamespace = 'penstock'::regnamespace"
    )
    for name in (f"penstock.{row['proname']}" for row in rows):
        assert f"### {name}\n" in page or f"| `{name}` |" in page, name
