"""docs/reference/log-events.md: events and levels from the calls, meanings from the page itself.

A call of a logger has no place for a meaning, so the last column is written by hand and kept.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import penstock
from tools.reference.blocks import Incomplete, body_of, code, table

NAME = "log-events"
LEVELS = ("debug", "info", "warning", "error")

_ROW = re.compile(r"^\| `(?P<event>[^`]+)` \| [^|]* \| (?P<meaning>.+) \|$", re.MULTILINE)


def blocks(page: str) -> dict[str, str]:
    """Return the table; raises Incomplete for an event that the page gives no meaning."""
    meanings = {
        row["event"]: row["meaning"].replace(r"\|", "|")
        for row in _ROW.finditer(body_of(page, NAME))
    }
    levels: dict[str, set[str]] = {}
    for event, level in logged_events(Path(penstock.__file__).parent):
        levels.setdefault(event, set()).add(level)
    if missing := sorted(levels.keys() - meanings.keys()):
        raise Incomplete(
            f"add a row `| event | level | meaning |` to the block for: {', '.join(missing)}"
        )
    rows = (
        (code(event), ", ".join(sorted(found, key=LEVELS.index)), meanings[event])
        for event, found in sorted(levels.items())
    )
    return {NAME: table(("event", "level", "meaning"), rows)}


def logged_events(source: Path) -> Iterator[tuple[str, str]]:
    """Yield the event and the level of every call of a logger with a literal under a folder."""
    for path in source.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(
                    func=ast.Attribute(value=logger, attr=level),
                    args=[ast.Constant(value=str(event)), *_],
                ) if level in LEVELS and ast.unparse(logger).rsplit(".", 1)[-1] in ("log", "_log"):
                    yield event, level
                case _:
                    pass
