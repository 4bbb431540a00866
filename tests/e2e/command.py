"""Run the command line as a process and wait for lines of its output. Leaves no process behind."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

WAIT_SECONDS = 120.0  # Many times what the slowest start takes on a busy machine.


@dataclass(slots=True)
class Command:
    """A process and its output so far, standard output and error in one list."""

    process: subprocess.Popen[str]
    lines: list[str] = field(default_factory=list[str])
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _readers: list[threading.Thread] = field(default_factory=list[threading.Thread])

    def wait_for(self, pattern: str, *, after: int = 0) -> re.Match[str]:
        """Wait for a line that matches, from number `after` on, and return the match."""
        with self._changed:
            found = self._changed.wait_for(
                lambda: self._find(pattern, after) or self._has_ended(), timeout=WAIT_SECONDS
            )
        assert isinstance(found, re.Match), f"no {pattern!r} in:\n" + "\n".join(self.lines)
        return found

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and return the exit code."""
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        """Wait until the process has ended and its output is read; return the exit code."""
        code = self.process.wait(timeout=WAIT_SECONDS)
        for reader in self._readers:
            reader.join(timeout=WAIT_SECONDS)
        return code

    def collect(self, stream: IO[str]) -> None:
        """Collect the lines of a stream from now on."""
        reader = threading.Thread(target=self._read, args=[stream])
        self._readers.append(reader)
        reader.start()

    def _read(self, stream: IO[str]) -> None:
        with stream:
            for line in stream:
                with self._changed:
                    self.lines.append(line.rstrip("\n"))
                    self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    def _find(self, pattern: str, after: int) -> re.Match[str] | None:
        found = (re.search(pattern, line) for line in self.lines[after:])
        return next((match for match in found if match), None)

    def _has_ended(self) -> bool:
        return self.process.poll() is not None


def penstock(
    *arguments: str,
    folder: Path,
    environment: Mapping[str, str] | None = None,
    interpreter: str = sys.executable,
) -> AbstractContextManager[Command]:
    """Run `penstock …` in `folder` while the body runs; killed at the end if it still runs."""
    return python(
        "penstock.cli",
        *arguments,
        folder=folder,
        environment=environment,
        interpreter=interpreter,
    )


@contextmanager
def python(
    module: str,
    *arguments: str,
    folder: Path,
    environment: Mapping[str, str] | None = None,
    interpreter: str = sys.executable,
) -> Generator[Command]:
    """Run a module in `folder` while the body runs, as `penstock` does."""
    process = subprocess.Popen(
        [interpreter, "-m", module, *arguments],
        cwd=folder,
        env=clean_environment(environment or {}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    command = Command(process)
    assert process.stdout is not None
    assert process.stderr is not None
    command.collect(process.stdout)
    command.collect(process.stderr)
    try:
        yield command
    finally:
        if process.poll() is None:
            process.kill()
        command.wait()


@contextmanager
def penstock_unread(
    *arguments: str, folder: Path, environment: Mapping[str, str]
) -> Generator[subprocess.Popen[bytes]]:
    """Run `penstock … 2>&1 | …` while the body runs, with a pipe whose reader has ended."""
    reader, writer = os.pipe()
    os.close(reader)
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock.cli", *arguments],
        cwd=folder,
        env=clean_environment(environment),
        stdin=subprocess.DEVNULL,
        stdout=writer,
        stderr=writer,
    )
    os.close(writer)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(timeout=WAIT_SECONDS)


def clean_environment(extra: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without settings of Penstock, and with `extra`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    return kept | {"PYTHONUNBUFFERED": "1"} | dict(extra)
