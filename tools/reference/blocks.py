"""The generated blocks of a hand-written page, and the Markdown that they are made of.

A block begins with the line `<!-- generated: NAME -->` and ends with the line `<!-- end -->`.
"""

import re
from collections.abc import Iterable, Mapping, Sequence

_BLOCK = re.compile(
    r"^(?P<opening><!-- generated: (?P<name>[^\n]+?) -->)\n(?P<body>.*?)^<!-- end -->$",
    re.MULTILINE | re.DOTALL,
)
_CODE = re.compile(r"(`[^`]*`)")
_NAME = re.compile(r"(?<![\w-])(?:--[a-z][a-z-]+|(?:PENSTOCK|DISPATCH)_[A-Z_]+)")
_SENTENCE_END = re.compile(r"(?<=[.?!]) (?=[A-Z`])")


class Incomplete(Exception):
    """Something that the page must describe has no text, or no place on the page."""


def filled(page: str, blocks: Mapping[str, str]) -> str:
    """Return the page with every block replaced; raises Incomplete unless both sides match."""
    places = [found["name"] for found in _BLOCK.finditer(page)]
    if unknown := [name for name in places if name not in blocks]:
        raise Incomplete(f"the page has blocks that nothing generates: {', '.join(unknown)}")
    if missing := [name for name in blocks if name not in places]:
        raise Incomplete(f"the page has no block for: {', '.join(missing)}")
    return _BLOCK.sub(lambda found: _block(found["opening"], blocks[found["name"]]), page)


def _block(opening: str, text: str) -> str:
    # Blank lines: Markdown would take what follows a comment directly for a part of it.
    return f"{opening}\n\n{text.strip()}\n\n<!-- end -->"


def body_of(page: str, name: str) -> str:
    """Return what the page has in a block now."""
    return next((each["body"] for each in _BLOCK.finditer(page) if each["name"] == name), "")


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; cells are Markdown already, apart from bars."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(_cell(each) for each in line)} |" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", r"\|")


def code(text: object) -> str:
    """Return a text as code."""
    return f"`{text}`"


def choice(values: Sequence[object]) -> str:
    """Return values as a list in a sentence: `a`, `b` or `c`."""
    *others, last = map(code, values)
    return f"{', '.join(others)} or {last}" if others else last


def plain(text: str) -> str:
    """Return a text of the code on one line, as Markdown.

    Options and variables become code, and what is code already stays so; stars stay stars.
    """
    parts = _CODE.split(" ".join(text.split()))
    return "".join(part if part.startswith("`") else _escaped(part) for part in parts)


def _escaped(text: str) -> str:
    return _NAME.sub(r"`\g<0>`", re.sub(r"([*<])", r"\\\1", text))


def sentences(text: str) -> str:
    """Return a text with one sentence per line and its paragraphs apart."""
    paragraphs = re.split(r"\n\s*\n", text.strip())
    return "\n\n".join(_SENTENCE_END.sub("\n", plain(each)) for each in paragraphs)
