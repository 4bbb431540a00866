"""The consumer of quick.py as a process whose lines a test can wait for. It ends killed."""

import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.e2e.command import Command, clean_environment

ROOT = Path(__file__).parents[3]


@contextmanager
def quick(*arguments: str, environment: Mapping[str, str]) -> Generator[Command]:
    """Run the consumer while the body runs, then kill it."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.integrations.kafka.quick", *arguments],
        cwd=ROOT,
        env=clean_environment(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    command = Command(process)
    assert process.stdout is not None
    assert process.stderr is not None
    command.listen(process.stdout)
    command.listen(process.stderr)
    try:
        yield command
    finally:
        process.kill()
        command.wait()
