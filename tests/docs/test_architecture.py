"""ARCHITECTURE.md names what exists: every module, and every file and name of a walk."""

import re
from pathlib import Path

import pytest

from tests.docs.pages import cells_of, read

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "penstock"
PAGE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
WALKS = [
    (walk.partition("\n")[0], walk.partition("\n## ")[0]) for walk in PAGE.split("\n## Walk ")[1:]
]
# A link to a file, and the names in backticks that follow it directly.
STEP = re.compile(r"\]\((?P<path>[^)#]+)\)(?P<names>(?:,? `\w+`)*)")


def modules_named() -> set[str]:
    """Return the modules of the tree, as paths below src/penstock."""
    tree = PAGE.partition("```text\nsrc/penstock/\n")[2].partition("\ntests/")[0]
    folders: list[str] = []
    named: set[str] = set()
    for line in tree.splitlines():
        indent = len(line) - len(line.lstrip())
        head, _, rest = line.strip().partition(" ")
        if head.endswith("/") and indent <= 8:
            folders = [*folders[: indent // 2 - 1], head.rstrip("/")]
        elif head.endswith(".py"):
            named.add(head)
            continue
        else:
            rest = line
        named |= {"/".join([*folders, f"{name}.py"]) for name in re.findall(r"\w+", rest)}
    return named


def test_every_module_of_the_package_is_in_the_tree() -> None:
    """A reader who looks for a module by its word must find it there."""
    modules = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if path.name != "__init__.py"
    }

    assert modules - modules_named() == set()


def test_every_table_has_one_row() -> None:
    """Two rows of one table would name different writers sooner or later."""
    part = PAGE.partition("## Tables, and who writes them")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in part.splitlines() if line.startswith("| `")]
    tables, _, _ = read("docs/reference/tables.md").partition("## States")

    named = [name for row in rows for name in re.findall(r"`(\w+)`", row)]

    assert sorted(named) == sorted(cells_of(tables))


def test_the_picture_names_tables_that_exist() -> None:
    """A table is renamed in the code, where nobody looks at the picture."""
    picture = (ROOT / "docs" / "architecture.svg").read_text(encoding="utf-8")
    store = picture.partition(">PostgreSQL<")[2].partition(">workers, any number<")[0]
    tables, _, _ = read("docs/reference/tables.md").partition("## States")

    labels = " ".join(re.findall(r'class="mono"[^>]*>([^<]+)<', store))
    named = re.findall(r"\w+", labels)

    assert len(named) >= 10
    assert set(named) <= set(cells_of(tables))


def test_the_tree_names_no_module_that_is_gone() -> None:
    words = {"one", "stored", "function", "view", "or", "trigger", "per", "file", "tables", "and"}
    words |= {"data", "in", "steps", "statement", "used", "by", "exactly", "module"}
    gone = {name for name in modules_named() if not (SOURCE / name).exists()}

    assert {Path(name).stem for name in gone} <= words


@pytest.mark.parametrize(("title", "walk"), WALKS, ids=[title for title, _ in WALKS])
def test_a_walk_names_files_and_names_that_exist(title: str, walk: str) -> None:
    steps = list(STEP.finditer(walk))

    assert len(steps) >= 4, title
    for step in steps:
        file = ROOT / step["path"]
        assert file.is_file(), f"{step['path']} is gone"
        text = file.read_text(encoding="utf-8")
        for name in re.findall(r"\w+", step["names"]):
            assert re.search(
                rf"^\s*(async def|def|class) {name}\b|^{name}\b", text, re.MULTILINE
            ), f"{step['path']} has no {name}"


def test_there_are_three_walks() -> None:
    assert [title[:1] for title, _ in WALKS] == ["1", "2", "3"]
