"""The rules of style that no linter knows. Each failure names the file and what to do."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "penstock"
MODULES = sorted(SOURCE.rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
STATEMENTS = sorted(SOURCE.rglob("sql/*.sql"))

DOCSTRING_LINES_MAX = 5
DOCSTRING_MAY_BE_LONG = {"base/errors.py"}  # It draws the tree.
NAMES_BANNED = {"common", "helper", "helpers", "manager", "misc", "util", "utils"}
MAY_CREATE_TASKS = {"base/aio.py"}
MAY_CATCH_EVERYTHING = {"base/aio.py", "kernel/execute.py"}
MAY_READ_THE_ENVIRONMENT = {"base/settings.py"}


def name_of(path: Path) -> str:
    return path.relative_to(SOURCE if SOURCE in path.parents else ROOT).as_posix()


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


each_module = pytest.mark.parametrize("path", MODULES, ids=name_of)
each_test = pytest.mark.parametrize("path", TESTS, ids=name_of)
each_statement = pytest.mark.parametrize("path", STATEMENTS, ids=name_of)


@each_module
def test_a_module_opens_with_one_to_five_lines(path: Path) -> None:
    """They say what it owns; more than that belongs into docs/."""
    docstring = ast.get_docstring(tree_of(path))

    assert docstring, "say in one line what this module owns"
    if name_of(path) not in DOCSTRING_MAY_BE_LONG:
        assert len(docstring.splitlines()) <= DOCSTRING_LINES_MAX


@each_module
def test_a_module_is_named_after_something(path: Path) -> None:
    names = {part.removesuffix(".py") for part in path.relative_to(SOURCE).parts}

    assert not names & NAMES_BANNED


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


@each_statement
def test_a_statement_opens_with_its_reason(path: Path) -> None:
    assert path.read_text(encoding="utf-8").startswith("-- ")


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
def test_a_test_replaces_no_code_of_ours(path: Path) -> None:
    """A patched module proves that the patch works."""
    imported = {
        name
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in [getattr(node, "module", None) or "", *(alias.name for alias in node.names)]
    }

    assert not any("mock" in name.split(".") for name in imported)


def calls(path: Path) -> Iterator[str]:
    """Yield the last name of everything that a file calls."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func).rsplit(".", 1)[-1]


def reraises(handler: ast.ExceptHandler) -> bool:
    return any(isinstance(node, ast.Raise) for node in ast.walk(handler))
