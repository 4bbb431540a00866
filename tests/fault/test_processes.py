"""The fork server: what it starts is as separate as processes of `python -m` are."""

import asyncio
import os
import signal
from pathlib import Path

from tests.fault.processes import ForkServer, forking
from tests.fault.waiting import pause, until

PROGRAM = "tests.fault.forked"


def environment(pool_size_max: int) -> dict[str, str]:
    return {**os.environ, "PENSTOCK_POOL_SIZE_MAX": str(pool_size_max)}


async def test_each_process_has_its_own_arguments_settings_and_random_numbers(
    forks: ForkServer, tmp_path: Path
) -> None:
    """Settings are read once in a process, and the seed of random numbers is copied by a fork."""
    seen: list[list[str]] = []
    for number in (11, 12):
        child = await forks.start(
            PROGRAM,
            *("show", f"argument {number}"),
            log=tmp_path / f"{number}",
            environment=environment(number),
        )
        assert await child.wait() == 0
        words = child.log.read_text().split(maxsplit=3)
        assert words[0] == str(child.pid)
        seen.append(words[1:])

    (first_size, first_random, first_rest), (second_size, second_random, second_rest) = seen
    assert (first_size, second_size) == ("11", "12")
    assert (first_rest, second_rest) == ("argument 11\n", "argument 12\n")
    assert first_random != second_random


async def test_the_exit_code_says_how_a_process_has_ended(
    forks: ForkServer, tmp_path: Path
) -> None:
    """A crash test tells a worker that was killed from one that failed."""
    failed = await forks.start(PROGRAM, "fail", log=tmp_path / "failed")
    killed = await forks.start(PROGRAM, "hang", log=tmp_path / "killed")
    terminated = await forks.start(PROGRAM, "hang", log=tmp_path / "terminated")
    await killed.until_logged("\n")
    await terminated.until_logged("\n")

    assert killed.is_running
    assert killed.send(signal.SIGKILL)
    assert terminated.send(signal.SIGTERM)

    assert await failed.wait() == 1
    assert {"ValueError: fail", "the thread has ended"} <= set(failed.log.read_text().splitlines())
    assert await killed.wait() == -signal.SIGKILL
    assert await terminated.wait() == -signal.SIGTERM
    assert not killed.is_running
    assert not killed.send(signal.SIGKILL)


async def test_a_fork_server_leaves_no_process_behind(tmp_path: Path) -> None:
    """A test that fails may not have ended what it has started."""
    async with forking() as own:
        child = await own.start(PROGRAM, "hang", log=tmp_path / "log")
        await child.until_logged("\n")

    assert not child.is_running


async def test_a_start_that_is_cancelled_leaves_the_next_one_its_own_process(
    forks: ForkServer, tmp_path: Path
) -> None:
    """A run may end while it starts a process; the other runs share the fork server."""
    for _ in range(3):
        cancelled = asyncio.ensure_future(forks.start(PROGRAM, "hang", log=tmp_path / "a"))
        await pause(0)
        cancelled.cancel()
        await asyncio.wait([cancelled])
    child = await forks.start(PROGRAM, "hang", log=tmp_path / "b")

    async def logs_to_its_own_file() -> bool:
        return Path(f"/proc/{child.pid}/fd/1").resolve() == tmp_path / "b"

    await until(logs_to_its_own_file, within=10)
    await child.end()
