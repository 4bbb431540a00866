"""The password of the embedded server: the owner of the folder has it, and no one else connects."""

import os
import pwd
import shutil
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest

from penstock.base.errors import BadSetting
from penstock.postgres.embedded import Server, find_running, running, start
from penstock.postgres.pool import connect
from tests.unit.postgres.test_embedded import holder, read, write

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can run another account's code")

TRUST = "local all all trust\nlocal replication all trust\n"


async def forget_password(data_dir: Path) -> None:
    """Leave a running server as earlier releases made it: without a password."""
    dsn = find_running(data_dir)
    assert dsn is not None
    connection = await connect(dsn)
    await connection.execute("ALTER ROLE postgres PASSWORD NULL")
    (data_dir / "postgres" / "pg_hba.conf").write_text(TRUST)
    await connection.execute("SELECT pg_reload_conf()")
    await connection.close()
    (data_dir / "pgpass").unlink()


async def refusal_of(server: Server) -> str:
    """Return what a client without the password is told."""
    bare = urlsplit(server.dsn)._replace(query=f"host={server.cluster.socket_dir}").geturl()
    with pytest.raises(BadSetting) as refused:
        await connect(f"{bare}&passfile=/nowhere")
    return refused.value.reason


def call(server: Server, *, account: str | None, address: str) -> subprocess.CompletedProcess[str]:
    """Run one query with psql, as another account or as our own."""
    entry = None if account is None else pwd.getpwnam(account)
    return subprocess.run(
        [server.cluster.binaries / "psql", "--no-password", "-Atc", "SELECT 1", address],
        user=None if entry is None else entry.pw_uid,
        group=None if entry is None else entry.pw_gid,
        extra_groups=None if entry is None else [],
        env={},
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )


async def test_a_client_without_the_password_is_refused(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        connection = await connect(server.dsn)
        await connection.close()

        assert "password" in await refusal_of(server)


@as_root
async def test_another_process_of_the_servers_account_cannot_connect(tmp_path: Path) -> None:
    """PostgreSQL refuses to run as root, and other services run as `nobody` too."""
    with running(tmp_path) as server:
        account = pwd.getpwuid(server.cluster.pgdata.stat().st_uid).pw_name
        socket = f"postgresql://postgres@/postgres?host={server.cluster.socket_dir}"

        stranger = [call(server, account=account, address=each) for each in (socket, server.dsn)]
        owner = call(server, account=None, address=server.dsn)

    assert account == "nobody"
    assert [each.returncode for each in stranger] == [2, 2]
    assert all("no password supplied" in each.stderr for each in stranger)
    assert (owner.returncode, owner.stdout) == (0, "1\n")


def test_only_the_owner_of_the_data_folder_can_read_the_password(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        found = server.cluster.passfile.stat()

    assert found.st_mode & 0o777 == 0o600
    assert found.st_uid == tmp_path.stat().st_uid


def test_addresses_and_logs_do_not_have_the_password(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with running(tmp_path) as server:
        password = server.cluster.passfile.read_text().rpartition(":")[2].strip()
        said = capfd.readouterr()

    assert password not in server.dsn + repr(server) + said.out + said.err
    for file in ("server.log", "pg_hba.conf", "postmaster.opts"):
        assert password not in (server.cluster.pgdata / file).read_text()


async def test_a_folder_of_an_earlier_release_gets_a_password_at_its_start(data_dir: Path) -> None:
    with running(data_dir) as server:
        await write(server.dsn, 1)
        await forget_password(data_dir)

    with running(data_dir) as server:
        assert await read(server.dsn) == [1]
        assert "password" in await refusal_of(server)


async def test_a_server_that_an_earlier_release_left_running_gets_a_password(
    data_dir: Path,
) -> None:
    """Its owner was killed, and it would let others in until somebody stops it."""
    with holder(data_dir) as (process, _):
        dsn = find_running(data_dir)
        assert dsn is not None
        await write(dsn, 1)
        await forget_password(data_dir)
        process.kill()
        process.wait()

        with running(data_dir) as server:
            assert await read(server.dsn) == [1]
            assert "password" in await refusal_of(server)


async def test_commands_reach_a_server_that_an_earlier_release_runs(data_dir: Path) -> None:
    """A new `penstock doctor` beside an old `penstock up`."""
    with running(data_dir):
        await forget_password(data_dir)

        found = find_running(data_dir)

        assert found is not None
        await (await connect(found)).close()


@pytest.mark.parametrize("is_empty", [False, True], ids=["missing", "empty"])
async def test_a_lost_passfile_is_made_anew(data_dir: Path, *, is_empty: bool) -> None:
    """Whoever owns the folder may always come in; a power cut may leave the file empty."""
    with running(data_dir) as server:
        await write(server.dsn, 1)
    lost = server.cluster.passfile.read_text()
    server.cluster.passfile.unlink()
    if is_empty:
        server.cluster.passfile.touch()

    with running(data_dir) as server:
        assert await read(server.dsn) == [1]
        assert server.cluster.passfile.read_text() != lost


async def test_a_cluster_from_another_folder_takes_the_password_of_this_one(
    data_dir: Path,
) -> None:
    """A backup may hold the cluster alone."""
    here, there = data_dir, data_dir / "there"
    with running(there) as server:
        await write(server.dsn, 1)
    shutil.rmtree(here / "postgres")
    (there / "postgres").rename(here / "postgres")

    with running(here) as server:
        assert await read(server.dsn) == [1]


async def test_rules_that_were_changed_are_written_again(data_dir: Path) -> None:
    (data_dir / "postgres" / "pg_hba.conf").write_text(TRUST)

    with running(data_dir) as server:
        assert "password" in await refusal_of(server)


@pytest.mark.parametrize("text", ["\n", "*:*:*:postgres:\n", "*:*:*:postgres:a'b\n", "a\nb\n"])
def test_a_file_that_is_no_passfile_is_refused_and_not_shown(tmp_path: Path, text: str) -> None:
    (tmp_path / "pgpass").write_text(text)

    with pytest.raises(BadSetting, match="pgpass is not a passfile of Penstock; delete it"):
        start(tmp_path)


async def test_a_passfile_that_others_may_read_is_closed_to_them(data_dir: Path) -> None:
    """Clients ignore such a file, and the server would refuse them."""
    (data_dir / "pgpass").chmod(0o644)

    with running(data_dir) as server:
        await (await connect(server.dsn)).close()

        assert (data_dir / "pgpass").stat().st_mode & 0o077 == 0


async def test_a_role_of_your_own_needs_its_own_password(data_dir: Path) -> None:
    with running(data_dir) as server:
        connection = await connect(server.dsn)
        await connection.execute("CREATE ROLE reports LOGIN PASSWORD 'secret'")
        await connection.close()
        host = server.cluster.socket_dir

        let_in = await asyncpg.connect(f"postgresql://reports:secret@/postgres?host={host}")

        assert await let_in.fetchval("SELECT current_user") == "reports"
        await let_in.close()
