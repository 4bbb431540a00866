"""A server of ours in a process of its own: started, known to listen, and ended in any case."""

import asyncio
import contextlib
import os
import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Final

from bench.environment import ROOT

READY_SECONDS_MAX: Final = 60.0
EXIT_SECONDS_MAX: Final = 20.0
URL: Final = re.compile(rb"http://([\w.]+):(\d+)")


class NotReady(Exception):
    """The process ended or said nothing of an address in time; the text is its last line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listening:
    """A process that accepts connections."""

    pid: int
    host: str
    port: int


@contextlib.asynccontextmanager
async def listening(
    command: tuple[str, ...], variables: Mapping[str, str]
) -> AsyncIterator[Listening]:
    """Start a server that prints its URL."""
    process = await asyncio.create_subprocess_exec(
        *command,
        env=os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"} | variables,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    reader: asyncio.Task[bytes] | None = None
    try:
        assert process.stdout is not None
        host, port = await _address(process.stdout)
        reader = asyncio.ensure_future(process.stdout.read())  # a full pipe would stop it
        yield Listening(pid=process.pid, host=host, port=port)
    finally:
        if reader is not None:
            reader.cancel()
        await _end(process)


async def _address(stdout: asyncio.StreamReader) -> tuple[str, int]:
    last = b"nothing was printed"
    try:
        async with asyncio.timeout(READY_SECONDS_MAX):
            while line := await stdout.readline():
                if found := URL.search(line):
                    return found[1].decode(), int(found[2])
                last = line
    except TimeoutError:
        raise NotReady("not ready in time") from None
    raise NotReady(f"it ended: {last.decode(errors='replace').strip()}")


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    try:
        await asyncio.wait_for(process.wait(), EXIT_SECONDS_MAX)
    except TimeoutError:
        process.kill()
        await process.wait()
