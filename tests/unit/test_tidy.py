"""The rules of style that no linter knows. Each failure names the file and what to do."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.postgres.functions import read_functions, read_history
from tests.database import OWNERS

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "penstock"
MODULES = sorted(SOURCE.rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
STATEMENTS = sorted(SOURCE.rglob("sql/*.sql"))
FUNCTIONS = sorted(SOURCE.rglob("functions/*.sql"))
STEPS = sorted(SOURCE.rglob("migrations/*.sql"))

PROSE = sorted(
    [
        *(path for ending in ("py", "sql", "lua", "md") for path in SOURCE.rglob(f"*.{ending}")),
        *(ROOT / "docs").rglob("*.md"),
        *ROOT.glob("*.md"),
    ]
)

DOCSTRING_LINES_MAX = 5
DOCSTRING_MAY_BE_LONG = {"errors.py"}  # They draw their tree.
NAMES_BANNED = {"common", "helper", "helpers", "manager", "misc", "util", "utils"}
# Words of a private vocabulary that was replaced by the field's own; no part of a name may be one.
WORDS_BANNED = {
    "apologize", "breath", "complaint", "crew", "dawdle", "desk", "doomed", "door", "fate",
    "hand_in", "havoc", "insist", "insisting", "intake", "judge", "judged", "judgement", "let_in",
    "let_out", "lonely", "office", "reckon", "shelf", "short_way", "strand", "tell",
    "volley", "volleys",
}  # fmt: skip
# Whole names: an SmtpRelay is fine.
CLASSES_BANNED = {"Channel", "Envelope", "Inbox", "Pass", "Relay", "Site"}
PHRASES_BANNED = (
    "of ours", "of theirs", "reckon", "who finds", "let go", "lets go", "stands there",
    "in good faith", "in good order", "in its hands", "we stand on", "had his", "for whoever",
    "insists", "puzzles",
)  # fmt: skip
MAY_CREATE_TASKS = {"base/aio.py"}
MAY_CATCH_EVERYTHING = {
    "base/aio.py",
    "base/threads.py",
    "integrations/kafka/dead_topic.py",
    "kernel/execute.py",
}
MAY_READ_THE_ENVIRONMENT = {"base/settings.py"}


def name_of(path: Path) -> str:
    return path.relative_to(SOURCE if SOURCE in path.parents else ROOT).as_posix()


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


each_module = pytest.mark.parametrize("path", MODULES, ids=name_of)
each_test = pytest.mark.parametrize("path", TESTS, ids=name_of)
each_statement = pytest.mark.parametrize("path", STATEMENTS, ids=name_of)
each_sql_file = pytest.mark.parametrize("path", STATEMENTS + FUNCTIONS + STEPS, ids=name_of)
each_function = pytest.mark.parametrize("path", FUNCTIONS, ids=name_of)
each_step = pytest.mark.parametrize("path", STEPS, ids=name_of)
each_text = pytest.mark.parametrize("path", PROSE, ids=name_of)


@each_module
def test_a_module_opens_with_one_to_five_lines(path: Path) -> None:
    """They say what it owns; more than that belongs into docs/."""
    docstring = ast.get_docstring(tree_of(path))

    assert docstring, "say in one line what this module owns"
    if path.name not in DOCSTRING_MAY_BE_LONG:
        assert len(docstring.splitlines()) <= DOCSTRING_LINES_MAX


@each_module
def test_a_module_is_named_after_something(path: Path) -> None:
    names = {part.removesuffix(".py") for part in path.relative_to(SOURCE).parts}

    assert not names & NAMES_BANNED


@pytest.mark.parametrize("path", [*MODULES, *TESTS], ids=name_of)
def test_a_name_is_the_fields_own_word(path: Path) -> None:
    """An engineer of this field must find the code by the word that the field uses."""
    names = {path.stem, *defined_names(path, with_variables=path in MODULES)}

    assert not {name for name in names if banned_words(name)}
    assert path not in MODULES or not names & CLASSES_BANNED


@pytest.mark.parametrize(
    ("name", "banned"),
    [
        ("Desk", {"desk"}),
        ("_tell_all", {"tell"}),
        ("SHELF_MAX", {"shelf"}),
        ("HTTPDoor", {"door"}),
        ("_ShortWay", {"short_way"}),
        ("intelligent", set[str]()),
        ("indoors", set[str]()),
        ("way_short", set[str]()),
    ],
)
def test_a_banned_word_is_found_as_a_whole_part_of_a_name(name: str, banned: set[str]) -> None:
    """The rule above must neither miss a spelling nor raise a false alarm."""
    assert banned_words(name) == banned


@each_text
def test_prose_is_plain_english(path: Path) -> None:
    """A reader whose second language is English must understand each sentence at once."""
    text = " ".join(path.read_text(encoding="utf-8").lower().split())

    assert not [phrase for phrase in PHRASES_BANNED if re.search(rf"\b{phrase}", text)]


@each_module
def test_tasks_are_created_in_one_place(path: Path) -> None:
    """A task without an owner is lost when it fails."""
    created = set(calls(path)) & {"create_task", "ensure_future", "run_coroutine_threadsafe"}

    assert not created or name_of(path) in MAY_CREATE_TASKS


@each_module
def test_everything_is_caught_in_supervisors_only(path: Path) -> None:
    """Elsewhere it hides a bug. Catching to raise again is fine."""
    if name_of(path) in MAY_CATCH_EVERYTHING:
        return
    for handler in (
        node for node in ast.walk(tree_of(path)) if isinstance(node, ast.ExceptHandler)
    ):
        caught = "BaseException" if handler.type is None else ast.unparse(handler.type)
        if caught in {"Exception", "BaseException"}:
            assert reraises(handler), f"line {handler.lineno}: name what you expect"


@each_module
def test_the_environment_is_read_in_one_place(path: Path) -> None:
    """Settings read in passing are neither checked at start nor documented."""
    text = ast.unparse(tree_of(path))
    reads = re.search(r"\bos\.(environ|getenv)\b", text)

    assert not reads or name_of(path) in MAY_READ_THE_ENVIRONMENT


@each_module
def test_public_names_are_sorted(path: Path) -> None:
    for node in tree_of(path).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            names: list[str] = ast.literal_eval(node.value)
            assert names == sorted(names)


@each_sql_file
def test_a_sql_file_opens_with_its_reason(path: Path) -> None:
    assert path.read_text(encoding="utf-8").startswith("-- ")


def test_a_function_has_one_body_in_the_whole_tree() -> None:
    """Of two, one is dead, and a reader may find that one."""
    bodies = Counter(name for path in (*STEPS, *FUNCTIONS) for _, name in definitions(path))

    assert [name for name, count in bodies.items() if count > 1] == []
    assert len(bodies) == len(FUNCTIONS) >= 60


@each_function
def test_a_function_file_defines_the_object_of_its_name_and_no_other(path: Path) -> None:
    assert [name for _, name in definitions(path)] == [path.stem]


@each_step
def test_a_migration_defines_no_function_view_or_trigger(path: Path) -> None:
    """They have a file of their own, which is the only place to change them."""
    assert list(definitions(path)) == []


@each_step
def test_a_migration_calls_no_function_of_its_own_package(path: Path) -> None:
    """Functions are applied after it, and by then may have become other ones."""
    own = {function.stem for function in (path.parent.parent / "functions").glob("*.sql")}
    called = set(re.findall(r"\bpenstock\.(\w+)\(", code_of(path)))

    assert not called & own


@pytest.mark.parametrize("owner", OWNERS)
def test_the_texts_of_all_functions_are_recorded(owner: str) -> None:
    """By the history a release knows whether the text in a database is older or newer."""
    recorded = {name: texts[-1] for name, texts in read_history(owner).items()}
    shipped = {each.name: each.checksum for each in read_functions(owner)}

    command = f"run: python -m penstock.postgres.history {owner}"
    assert recorded.items() >= shipped.items(), command


@each_statement
def test_a_statement_is_used_by_exactly_one_module(path: Path) -> None:
    """Two users would pull one statement in two directions; none means it is dead."""
    package = path.parent.parent
    users = [
        name_of(module)
        for module in package.glob("*.py")
        if f'"{path.name}"' in module.read_text(encoding="utf-8")
    ]

    assert len(users) == 1, f"used by {users}"


@each_test
def test_a_test_waits_on_a_signal_and_never_sleeps(path: Path) -> None:
    """A sleep is too short on a busy machine and too long on every other."""
    assert "sleep" not in set(calls(path))


@each_test
def test_a_test_replaces_no_code_of_penstock(path: Path) -> None:
    """A patched module proves that the patch works."""
    imported = {
        name
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in [getattr(node, "module", None) or "", *(alias.name for alias in node.names)]
    }

    assert not any("mock" in name.split(".") for name in imported)


def code_of(path: Path) -> str:
    """Return a SQL file without its comments."""
    return re.sub(r"--[^\n]*", "", path.read_text(encoding="utf-8"))


def definitions(path: Path) -> list[tuple[str, str]]:
    """Return the kind and name of each function, view and trigger that a SQL file creates."""
    pattern = r"\bCREATE\s+(?:OR\s+REPLACE\s+)?(FUNCTION|PROCEDURE|VIEW|TRIGGER)\s+(?:\w+\.)?(\w+)"
    return re.findall(pattern, code_of(path), re.IGNORECASE)


def defined_names(path: Path, *, with_variables: bool) -> Iterator[str]:
    """Yield the classes and functions that a file defines, and perhaps what it assigns."""
    for node in ast.walk(tree_of(path)):
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                yield node.name
            case ast.arg() if with_variables:
                yield node.arg
            case ast.Name(ctx=ast.Store()) if with_variables:
                yield node.id
            case ast.Attribute(ctx=ast.Store()) if with_variables:
                yield node.attr
            case _:
                pass


def banned_words(name: str) -> set[str]:
    """Return the banned words among the parts of a name, in snake_case or CamelCase."""
    parts = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)
    spelt = f"_{'_'.join(parts).lower()}_"
    return {word for word in WORDS_BANNED if f"_{word}_" in spelt}


def calls(path: Path) -> Iterator[str]:
    """Yield the last name of everything that a file calls."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func).rsplit(".", 1)[-1]


def reraises(handler: ast.ExceptHandler) -> bool:
    return any(isinstance(node, ast.Raise) for node in ast.walk(handler))
