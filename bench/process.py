"""Processes of the bench's own: started, known to be ready, and ended in any case.

Servers run beside a measurement; others run to their end and print one line of JSON.
"""

import asyncio
import contextlib
import json
import os
import re
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Final, cast

from bench.environment import ROOT

READY_SECONDS_MAX: Final = 60.0
EXIT_SECONDS_MAX: Final = 20.0
ANSWER_SECONDS_MAX: Final = 600.0
URL: Final = re.compile(rb"http://([\w.]+):(\d+)")


class NotReady(Exception):
    """The process ended or did not say in time that it is ready; the text is its last line."""


class NoAnswer(Exception):
    """The process ended without an answer; the text is the last line of its complaint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listening:
    """A process that accepts connections."""

    pid: int
    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A process that has said that it is ready, and what it said."""

    pid: int
    said: re.Match[bytes]


@contextlib.asynccontextmanager
async def listening(
    command: tuple[str, ...], variables: Mapping[str, str]
) -> AsyncGenerator[Listening]:
    """Start a server that prints its URL."""
    async with running(command, variables, ready=URL) as process:
        host, port = process.said[1].decode(), int(process.said[2])
        yield Listening(pid=process.pid, host=host, port=port)


@contextlib.asynccontextmanager
async def running(
    command: tuple[str, ...], variables: Mapping[str, str], *, ready: re.Pattern[bytes]
) -> AsyncGenerator[Running]:
    """Start a process and wait until a line that it prints matches `ready`."""
    process = await asyncio.create_subprocess_exec(
        *command,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", **variables},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    reader: asyncio.Task[bytes] | None = None
    try:
        assert process.stdout is not None
        said = await _first_match(process.stdout, ready)
        reader = asyncio.ensure_future(process.stdout.read())  # a full pipe would stop it
        yield Running(pid=process.pid, said=said)
    finally:
        if reader is not None:
            reader.cancel()
        await _end(process)


async def answer(
    command: tuple[str, ...], variables: Mapping[str, str] | None = None
) -> dict[str, object]:
    """Run a process to its end and return the JSON object that it printed, or raise NoAnswer."""
    process = await asyncio.create_subprocess_exec(
        *command,
        env={**os.environ, **(variables or {})},
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        output, errors = await asyncio.wait_for(process.communicate(), ANSWER_SECONDS_MAX)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        last = errors.decode(errors="replace").strip().splitlines() or ["no output"]
        raise NoAnswer(last[-1])
    return cast("dict[str, object]", json.loads(output))


async def _first_match(stdout: asyncio.StreamReader, ready: re.Pattern[bytes]) -> re.Match[bytes]:
    last = b"nothing was printed"
    try:
        async with asyncio.timeout(READY_SECONDS_MAX):
            while line := await stdout.readline():
                if found := ready.search(line):
                    return found
                last = line
    except TimeoutError:
        raise NotReady("not ready in time") from None
    raise NotReady(f"it ended: {last.decode(errors='replace').strip()}")


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):  # It may have been killed just now.
        process.terminate()
    try:
        await asyncio.wait_for(process.wait(), EXIT_SECONDS_MAX)
    except TimeoutError:
        process.kill()
        await process.wait()
