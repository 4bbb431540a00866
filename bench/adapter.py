"""The bench's half of the wire: one queue as a child process that answers verbs in JSON lines."""

import asyncio
import contextlib
import json
import os
import tempfile
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

from bench.environment import ROOT, Launch

LINE_BYTES_MAX: Final = 256 * 1024 * 1024  # a list of start instants is one line
VERB_SECONDS_MAX: Final = 3600.0
EXIT_SECONDS_MAX: Final = 10.0
STDERR_LINES: Final = 5

Progress = Callable[[int], None]


class AdapterFailed(Exception):
    """A child reported an error or died; the text says which and why."""


@dataclass(frozen=True, slots=True)
class Adapter:
    """One running child."""

    name: str
    _process: asyncio.subprocess.Process
    _stderr: Path

    async def call(
        self, verb: str, *, progress: Progress | None = None, **arguments: object
    ) -> dict[str, object]:
        """Send one verb and return its answer; raise AdapterFailed when there is none."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            stdin.write(json.dumps({"verb": verb, **arguments}).encode() + b"\n")
            await stdin.drain()
            async with asyncio.timeout(VERB_SECONDS_MAX):
                while line := await stdout.readline():
                    message = cast("dict[str, object]", json.loads(line))
                    match message:
                        case {"ok": dict(answer)}:
                            return cast("dict[str, object]", answer)
                        case {"progress": int(count)}:
                            if progress is not None:
                                progress(count)
                        case _:
                            raise AdapterFailed(f"{verb}: {message.get('error')}")
        except (ConnectionError, TimeoutError) as exc:
            raise AdapterFailed(f"{verb}: {exc or 'timed out'}; {self._last_words()}") from exc
        raise AdapterFailed(f"{verb}: the process ended; {self._last_words()}")

    def _last_words(self) -> str:
        lines = self._stderr.read_text(errors="replace").strip().splitlines()
        return " | ".join(lines[-STDERR_LINES:]) or "nothing on stderr"


@contextlib.asynccontextmanager
async def adapter(name: str, launch: Launch) -> AsyncIterator[Adapter]:
    """Start a child, and end it whatever happens."""
    with tempfile.NamedTemporaryFile(prefix=f"bench-{name}-", suffix=".err") as stderr:
        process = await asyncio.create_subprocess_exec(
            *launch.command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=stderr,
            env=os.environ | launch.variables,
            cwd=ROOT,
            limit=LINE_BYTES_MAX,
        )
        try:
            yield Adapter(name, process, Path(stderr.name))
        except BaseException:
            # It may be in the middle of a drain and would not notice the end of its input.
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            raise
        finally:
            await _end(process)


async def _end(process: asyncio.subprocess.Process) -> None:
    assert process.stdin is not None
    process.stdin.close()  # the end of its input is the child's signal to leave
    try:
        await asyncio.wait_for(process.wait(), EXIT_SECONDS_MAX)
    except TimeoutError:
        process.kill()
        await process.wait()
