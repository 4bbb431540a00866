"""Read the output of a command: JSON lines, text for people, or the one line of an error."""

import json
from typing import Any

from tests.cli.conftest import Ended


def answer(ended: Ended) -> dict[str, Any]:
    (line,) = answers(ended)
    return line


def answers(ended: Ended) -> list[dict[str, Any]]:
    assert ended.code == 0, ended.err
    return [json.loads(line) for line in ended.out.splitlines()]


def record(ended: Ended) -> dict[str, str]:
    """Return the fields printed for people, up to the first empty line."""
    assert ended.code == 0, ended.err
    lines = ended.out.split("\n\n")[0].splitlines()
    return {name: value.strip() for name, _, value in (line.partition(" ") for line in lines)}


def refused(ended: Ended, code: int) -> str:
    """Return the one line of the error with which a command ended."""
    assert ended.code == code, ended.err
    assert ended.err.startswith("penstock: ")
    assert ended.err.count("\n") == 1
    return ended.err.removeprefix("penstock: ").rstrip()
