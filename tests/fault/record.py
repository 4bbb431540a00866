"""The record that handlers of the crash tests write: a line for each start, shared by all workers.

A write to a file opened for appending remains after a kill, in the order of the starts. A kill may
cut a write short at the end of a page of the file: such a line has no end mark, and its handler has
not begun.
"""

import os
from pathlib import Path

END = ";"


def write_line(record: int, *words: object) -> None:
    """Append a line to the file with this descriptor."""
    os.write(record, f"\n{' '.join(map(str, words))}{END}".encode())


def read_lines(record: Path) -> list[list[str]]:
    """Return the words of each whole line; none if there is no file yet."""
    lines = record.read_text(encoding="ascii").splitlines() if record.exists() else []
    return [line.removesuffix(END).split() for line in lines if line.endswith(END)]


def count_lines(record: Path) -> int:
    """Return how many whole lines there are."""
    return record.read_bytes().count(END.encode()) if record.exists() else 0
