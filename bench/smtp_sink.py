"""Postfix's own test programs: smtp-sink as the relay, and smtp-source as the fastest sender.

The sink accepts and forgets mails, and counts them with their sessions in a file.
"""

import asyncio
import contextlib
import os
import re
import shutil
import tempfile
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from bench.environment import Unavailable
from bench.nginx import free_port
from bench.peers.mail_text import RECIPIENT, SENDER
from bench.process import NotReady

HOST: Final = "127.0.0.1"
BACKLOG: Final = 1024
READY_SECONDS_MAX: Final = 5.0
READY_LOOK_SECONDS: Final = 0.02
SOURCE_SECONDS_MAX: Final = 120.0
TAIL_BYTES: Final = 200  # The last counters are within so many bytes.
COUNTERS: Final = re.compile(rb"sess=(\d+) quit=\d+ mesg=(\d+)\r")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink:
    """A running sink."""

    port: int
    counters: Path

    def counted(self) -> tuple[int, int]:
        """Return the sessions that have ended, and the messages."""
        with self.counters.open("rb") as file:
            file.seek(max(0, self.counters.stat().st_size - TAIL_BYTES))
            found = COUNTERS.findall(file.read())
        return (int(found[-1][0]), int(found[-1][1])) if found else (0, 0)


@contextlib.asynccontextmanager
async def smtp_sink() -> AsyncGenerator[Sink]:
    """Run smtp-sink on a free port of loopback."""
    binary = _find("smtp-sink")
    # As root it needs an account to change to.
    account = ("-u", "nobody") if os.geteuid() == 0 else ()
    with tempfile.NamedTemporaryFile(prefix="pbench-sink-") as counters:
        port = free_port()
        process = await asyncio.create_subprocess_exec(
            binary, "-c", *account, f"{HOST}:{port}", str(BACKLOG), stdout=counters
        )
        try:
            await _listens(process.pid)
            yield Sink(port=port, counters=Path(counters.name))
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            await process.wait()


async def send_from_source(
    sink: Sink, *, mails: int, size: int, at_once: int, keeps: bool
) -> float:
    """Let smtp-source send mails; return the seconds. `keeps` reuses connections (its -d)."""
    command = (
        *(_find("smtp-source"), "-s", str(at_once), "-m", str(mails), "-l", str(size)),
        *("-f", SENDER, "-t", RECIPIENT),
        *(("-d",) if keeps else ()),
        f"{HOST}:{sink.port}",
    )
    started = time.perf_counter()
    process = await asyncio.create_subprocess_exec(*command)
    try:
        code = await asyncio.wait_for(process.wait(), SOURCE_SECONDS_MAX)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if code != 0:
        raise NotReady(f"smtp-source ended with {code}")
    return time.perf_counter() - started


def _find(name: str) -> str:
    # Only root's PATH looks into /usr/sbin, where Debian has them.
    binary = shutil.which(name) or shutil.which(f"/usr/sbin/{name}")
    if binary is None:
        raise Unavailable(f"needs {name}, not found on this machine (apt-get install postfix)")
    return binary


async def _listens(pid: int) -> None:
    """Wait without connecting, which would be counted as a session."""
    until = time.monotonic() + READY_SECONDS_MAX
    while time.monotonic() < until:
        with contextlib.suppress(psutil.NoSuchProcess):
            sockets = psutil.Process(pid).net_connections(kind="tcp")
            if any(each.status == psutil.CONN_LISTEN for each in sockets):
                return
        await asyncio.sleep(READY_LOOK_SECONDS)
    raise NotReady("smtp-sink does not listen")
