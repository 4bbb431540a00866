"""`penstock up` as a process: signals, and an embedded database in a folder."""

import signal
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from penstock.console.process import DUPLICATE_SECONDS
from penstock.kernel.inspect import balance, read_attempts
from penstock.kernel.item import ItemId
from penstock.postgres.embedded import embedded_server
from penstock.postgres.pool import open_pool
from tests.e2e.command import Command, penstock

UP = ("up", "--port", "0")
SERVING = r"api +(http://\S+)"
KEY = r"admin key +(psk_\S+)"


def url_of(up: Command) -> str:
    return str(up.wait_for(SERVING).group(1))


def enqueue(folder: Path, lane: str, payload: int) -> ItemId:
    with penstock("item", "enqueue", lane, str(payload), folder=folder) as command:
        return ItemId(int(command.wait_for(r"^id +(\d+)").group(1)))


def is_authenticated(url: str, key: str) -> bool:
    answer = httpx.get(f"{url}/lanes", headers={"Authorization": f"Bearer {key}"})
    return answer.status_code == 200


@pytest.mark.covers("A82", "B9")
def test_the_first_start_shows_an_admin_key_and_later_ones_do_not(folder: Path) -> None:
    """The output of a restart must not contain it."""
    with penstock(*UP, folder=folder) as first:
        url = url_of(first)
        key = first.wait_for(KEY).group(1)
        assert httpx.get(f"{url}/health").json()["ready"] is True
        assert httpx.get(f"{url}/lanes").status_code == 401
        assert is_authenticated(url, key)
        assert first.stop(signal.SIGINT) == 0

    with penstock(*UP, folder=folder) as second:
        assert is_authenticated(url_of(second), key)
        second.wait_for("hint: give your own handlers")
        assert second.stop() == 0
    assert not any("psk_" in line for line in second.lines)


def test_a_given_admin_key_is_used_and_never_printed(folder: Path) -> None:
    key = "a-key-from-the-vault"
    with penstock(*UP, folder=folder, environment={"PENSTOCK_ADMIN_KEY": key}) as up:
        assert is_authenticated(url_of(up), key)
        up.wait_for("lanes")
        assert up.stop() == 0

    assert not any(key in line or "psk_" in line for line in up.lines)


def test_the_password_of_the_database_is_never_printed(folder: Path) -> None:
    with penstock(*UP, folder=folder, environment={"PENSTOCK_LOG_LEVEL": "debug"}) as up:
        up.wait_for(r"database +\S+")
        password = (folder / ".penstock" / "pgpass").read_text().rpartition(":")[2].strip()
        with penstock("doctor", folder=folder) as doctor:
            assert doctor.wait() == 0
        assert up.stop() == 0

    assert password
    assert not any(password in line for line in (*up.lines, *doctor.lines))


@pytest.mark.covers("B58")
async def test_sigterm_finishes_what_is_in_flight_and_leaves_the_rest(
    folder: Path, gate: Callable[[int], Path]
) -> None:
    """A deployment must neither interrupt work nor hold items that have not started."""
    opening = gate(1)
    with penstock(*UP, "--app", "gated:app", folder=folder) as up:
        url_of(up)
        running = enqueue(folder, "gated", 1)
        up.wait_for("started 1 in")
        waiting = enqueue(folder, "gated", 2)

        up.process.send_signal(signal.SIGTERM)
        up.wait_for("worker.stop_requested")
        opening.write_bytes(b"")

        assert up.wait() == 0
        assert "ended 1" in up.lines
        assert not any(line.startswith("started 2") for line in up.lines)

    async with embedded_server(folder / ".penstock") as server:
        pool = await open_pool(server.dsn, min_size=1)
        counted = await balance(pool)
        attempts = [len(await read_attempts(pool, item)) for item in (running, waiting)]
        pool.terminate()
    assert (counted.done, counted.ready, counted.leased) == (1, 1, 0)
    assert attempts == [1, 0]


def test_a_second_signal_stops_immediately(folder: Path, gate: Callable[[int], Path]) -> None:
    """The operator decides; the item returns when its lease expires."""
    opening = gate(1)
    with penstock(*UP, "--app", "gated:app", folder=folder) as up:
        url_of(up)
        enqueue(folder, "gated", 1)
        up.wait_for("started 1 in")

        up.process.send_signal(signal.SIGINT)
        up.wait_for("a second signal stops immediately")
        threading.Event().wait(DUPLICATE_SECONDS)
        up.process.send_signal(signal.SIGINT)
        # The thread that waits at the gate delays the exit of the interpreter, as any thread would.
        up.wait_for("server.stopped")
        opening.write_bytes(b"")

        assert up.wait() == 130


def test_a_duplicate_signal_counts_once(folder: Path) -> None:
    """`timeout`, make and supervisors forward signals that the whole process group gets."""
    with penstock(*UP, folder=folder) as up:
        url_of(up)

        up.process.send_signal(signal.SIGTERM)
        up.wait_for("a second signal stops immediately")
        up.process.send_signal(signal.SIGTERM)

        assert up.wait() == 0


def test_a_second_up_in_the_same_folder_names_the_process_that_uses_it(folder: Path) -> None:
    with penstock(*UP, folder=folder) as first:
        url_of(first)

        with penstock(*UP, folder=folder) as second:
            assert second.wait() == 4

        assert len(second.lines) == 1
        assert f"in use by process {first.process.pid}" in second.lines[0]
        assert first.stop() == 0


def test_a_port_in_use_is_reported_in_one_line(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])

        with penstock("up", "--port", port, folder=folder) as up:
            assert up.wait() == 2

    (message,) = [line for line in up.lines if line.startswith("penstock: ")]
    assert port in message
    assert not any("Traceback" in line for line in up.lines)


def test_up_continues_after_kill_9(folder: Path) -> None:
    """Kill -9 leaves PostgreSQL running; the next start adopts it, and nothing is lost."""
    with penstock(*UP, folder=folder) as first:
        url_of(first)
        with penstock("lane", "set", "open", "--create", folder=folder) as created:
            assert created.wait() == 0
        enqueue(folder, "open", 7)
        first.process.kill()
        first.wait()

    with penstock(*UP, "--app", "gated:app", folder=folder) as second:
        second.wait_for("handled 7")
        assert second.stop() == 0


def test_a_signal_while_up_waits_for_the_database_ends_it(folder: Path) -> None:
    unavailable = {"PENSTOCK_DATABASE_URL": "postgresql://127.0.0.1:1/nowhere"}
    with penstock(*UP, folder=folder, environment=unavailable) as up:
        up.wait_for("database.awaited")

        assert up.stop() == 0


def test_an_address_that_other_machines_reach_causes_a_warning(folder: Path) -> None:
    unavailable = {"PENSTOCK_DATABASE_URL": "postgresql://127.0.0.1:1/nowhere"}
    with penstock(*UP, "--host", "0.0.0.0", folder=folder, environment=unavailable) as up:
        up.wait_for("warning: 0.0.0.0 is reachable from other machines")
        up.wait_for("database.awaited")
        assert up.stop() == 0
