"""The consumer of quick.py as a process whose lines a test can wait for. It ends killed."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from tests.e2e.command import Command, python

ROOT = Path(__file__).parents[3]


def quick(*arguments: str, environment: Mapping[str, str]) -> AbstractContextManager[Command]:
    """Run the consumer while the body runs, then kill it."""
    return python(
        "tests.integrations.kafka.quick", *arguments, folder=ROOT, environment=environment
    )
