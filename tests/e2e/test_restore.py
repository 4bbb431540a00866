"""Backups of the embedded database: a copied data folder, and a dump that is restored elsewhere."""

import os
import re
import shutil
import subprocess
from pathlib import Path

from penstock.postgres.cluster import find_binaries
from tests.e2e.command import WAIT_SECONDS, penstock

UP = ("up", "--port", "0", "--no-worker")
DATABASE = r"database +(\S+)/postgres$"  # The folder of the socket, and the database.


def run(*arguments: str, folder: Path) -> str:
    """Run `penstock …` to its end and return what it printed."""
    with penstock(*arguments, folder=folder) as command:
        assert command.wait() == 0, command.lines
        return "\n".join(command.lines)


def enqueue(folder: Path) -> str:
    """Enqueue the one item with its key and return its id and whether it is new."""
    said = run("item", "enqueue", "mail", "1", "--key", "letter-1", folder=folder)
    return " ".join(re.findall(r"^(?:id|is_new) +(\S+)", said, re.MULTILINE))


def client(program: str, *arguments: str, folder: Path, host: str) -> None:
    """Run `psql` or `pg_dump` as the page on security shows it."""
    done = subprocess.run(
        [
            find_binaries() / program,
            *("--host", host, "--username", "postgres", "--no-password"),
            *arguments,
        ],
        env=os.environ | {"PGPASSFILE": str(folder / ".penstock" / "pgpass")},
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def fill(folder: Path) -> str:
    run("lane", "set", "mail", "--create", folder=folder)
    return enqueue(folder).partition(" ")[0]


def test_a_copy_of_the_data_folder_is_a_backup(tmp_path: Path) -> None:
    """The server must be stopped meanwhile; the copy has its password with it."""
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    with penstock(*UP, folder=source) as up:
        up.wait_for(DATABASE)
        item_id = fill(source)
        assert up.stop() == 0
    target.mkdir()
    run_copy(source / ".penstock", target / ".penstock")

    with penstock(*UP, folder=target) as up:
        up.wait_for(DATABASE)
        again = enqueue(target)
        assert up.stop() == 0

    assert again == f"{item_id} no"


def run_copy(source: Path, target: Path) -> None:
    """Copy with modes and owners."""
    subprocess.run(["cp", "-a", source, target], check=True, timeout=WAIT_SECONDS)


def test_a_dump_is_restored_into_another_folder_with_its_lanes_paused(tmp_path: Path) -> None:
    """A restored queue is older than the world, so nothing may run before a person has decided."""
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    target.mkdir()
    dump = tmp_path / "penstock.sql"
    with penstock(*UP, folder=source) as up:
        host = up.wait_for(DATABASE).group(1)
        item_id = fill(source)
        options = ("--schema", "penstock", "--file", str(dump), "postgres")
        client("pg_dump", *options, folder=source, host=host)
        assert up.stop() == 0

    with penstock(*UP, folder=target) as up:
        host = up.wait_for(DATABASE).group(1)
        client(
            "psql",
            *("--single-transaction", "--set", "ON_ERROR_STOP=1", "--quiet"),
            *("--command", "DROP SCHEMA penstock CASCADE", "--file", str(dump)),
            *("--command", "UPDATE penstock.lane SET enabled = false"),
            folder=target,
            host=host,
        )
        assert up.stop() == 0
    shutil.copy(source / ".penstock" / "secret.key", target / ".penstock" / "secret.key")

    with penstock("up", "--port", "0", folder=target) as up:
        up.wait_for(DATABASE)
        again = enqueue(target)
        found = run("doctor", folder=target)
        assert up.stop() == 0
    assert again == f"{item_id} no"
    assert re.search(r"^ok +schema +up to date", found, re.MULTILINE)
    assert re.search(r"^warn +paused lanes +mail, payment, penstock\.mail, ", found, re.MULTILINE)
    assert not any("admin key" in line for line in up.lines)  # The keys are those of the source.
