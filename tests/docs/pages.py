"""The pages of the documentation as tests see them: their text, their code blocks, their links."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path
    for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "src").rglob("*.md"))
)

_FENCE = re.compile(r"^```(?P<language>\w*)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)\)")
_HEADING = re.compile(r"^#+ (?P<title>.+)$", re.MULTILINE)
_FIRST_CELL = re.compile(r"^\| (?:\[)?`(?P<cell>[^`]+)`", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block; `line` is that of its first line of code."""

    page: Path
    line: int
    language: str
    code: str

    def __str__(self) -> str:
        return f"{name_of(self.page)}:{self.line}"


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def read(name: str) -> str:
    """Return the text of a page, by its path from the root."""
    return (ROOT / name).read_text(encoding="utf-8")


def blocks_of(page: Path, *languages: str) -> list[Block]:
    """Return the page's blocks in these languages, in their order."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(page, text[: found.start("code")].count("\n") + 1, found["language"], found["code"])
        for found in _FENCE.finditer(text)
        if found["language"] in languages
    ]


def all_blocks(*languages: str) -> list[Block]:
    return [block for page in PAGES for block in blocks_of(page, *languages)]


def prose_of(page: Path) -> str:
    """Return the page without its code blocks."""
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def links_of(page: Path) -> list[str]:
    """Return the targets of the links that stay within the repository."""
    targets = (found["target"] for found in _LINK.finditer(prose_of(page)))
    return [target for target in targets if "://" not in target]


def anchors_of(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    titles = (found["title"].lower() for found in _HEADING.finditer(prose_of(page)))
    return {re.sub(r"[^\w\- ]", "", title).replace(" ", "-") for title in titles}


def cells_of(text: str) -> dict[str, list[str]]:
    """Return the cells after the first of each table row that begins with code, by the first."""
    lines = (line for line in text.splitlines() if _FIRST_CELL.match(line))
    split = ([cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines)
    return {re.sub(r"^\[?`([^`]+)`.*$", r"\1", first): rest for first, *rest in split}


def commands_of(block: Block) -> Iterator[str]:
    """Yield the command lines of a shell block, continued lines joined."""
    for line in block.code.replace("\\\n", " ").splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            yield line.strip()
