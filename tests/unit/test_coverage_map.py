"""The coverage map: the list of behaviours is whole, and what claims to close it is found."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SIZES = {"A": 99, "B": 72, "C": 40, "D": 96, "E": 79}

LIST = """\
## A. Payments
- **A1** one
- **A2** two
- **A3** three
- **A4** (open question) four
"""


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A repository with four behaviours, no decision and no test."""
    write(tmp_path / "docs/reference/behaviours.md", LIST)
    write(tmp_path / "docs/explain/decisions.md", "# Decisions\n")
    return tmp_path


def test_the_list_holds_every_number_once() -> None:
    """Tests and decisions refer to the numbers for years; one that is lost or doubled misleads."""
    text = (ROOT / "docs/reference/behaviours.md").read_text(encoding="utf-8")

    numbers = re.findall(r"^- \*\*(\w+)\*\* \S", text, flags=re.MULTILINE)

    expected = [f"{letter}{n}" for letter, size in SIZES.items() for n in range(1, size + 1)]
    assert len(numbers) == 386
    assert sorted(numbers) == sorted(expected)


def test_our_own_marks_and_decisions_name_only_listed_behaviours() -> None:
    answer = run_map(ROOT, "--json")

    assert answer.returncode == 0, answer.stderr
    assert json.loads(answer.stdout)["total"]["listed"] == 386


MARK = 'pytest.mark.covers("A2", "A3")'
MARKED = {
    "function": f"@{MARK}\ndef test_it(): ...",
    "coroutine": f"@{MARK}\nasync def test_it(): ...",
    "class": f"@{MARK}\nclass TestIt:\n    def test_it(self): ...",
    "class body": f"class TestIt:\n    pytestmark = {MARK}\n    def test_it(self): ...",
    "module": f"pytestmark = {MARK}\ndef test_it(): ...",
    "module list": f"pytestmark = [{MARK}]\ndef test_it(): ...",
    "state machine": f"pytestmark = {MARK}\nTestIt = Model.TestCase",
}


@pytest.mark.parametrize("source", MARKED.values(), ids=MARKED)
def test_a_covers_mark_is_found(repo: Path, source: str) -> None:
    write(repo / "tests/kernel/test_some.py", source)

    assert open_numbers(repo) == ["A1", "A4"]


def test_a_mark_on_what_pytest_does_not_run_closes_nothing(repo: Path) -> None:
    """A helper that carries a mark proves nothing, however it is spelt."""
    write(repo / "tests/test_some.py", '@pytest.mark.covers("A2")\ndef check_it(): ...\n')

    assert open_numbers(repo) == ["A1", "A2", "A3", "A4"]


def test_a_decision_closes_what_it_lists(repo: Path) -> None:
    write(repo / "docs/explain/decisions.md", "## Why\nCloses: A1, A4\nBecause.\n")

    assert open_numbers(repo) == ["A2", "A3"]


def test_a_tested_and_decided_behaviour_counts_once_as_tested(repo: Path) -> None:
    write(repo / "docs/explain/decisions.md", "## Why\nCloses: A1\n")
    write(repo / "tests/test_some.py", '@pytest.mark.covers("A1")\ndef test_it(): ...\n')

    total = json.loads(run_map(repo, "--json").stdout)["total"]

    assert total == {"listed": 4, "tested": 1, "decided": 0, "open": 3}


def test_an_unknown_number_in_a_mark_is_refused_with_its_place(repo: Path) -> None:
    write(repo / "tests/test_some.py", '\n@pytest.mark.covers("A1", "A9")\ndef test_it(): ...\n')

    answer = run_map(repo)

    assert answer.returncode == 1
    assert answer.stderr == "tests/test_some.py:2: unknown behaviour A9\n"


def test_a_number_that_is_not_a_plain_string_is_refused(repo: Path) -> None:
    """The map reads the source without running it, so a name or a star would be lost in silence."""
    write(repo / "tests/test_some.py", "@pytest.mark.covers(*IDS)\ndef test_it(): ...\n")

    answer = run_map(repo)

    assert answer.returncode == 1
    assert "tests/test_some.py:1: unknown behaviour *IDS" in answer.stderr


def test_an_unknown_number_in_a_decision_is_refused_with_its_place(repo: Path) -> None:
    write(repo / "docs/explain/decisions.md", "## Why\nCloses: A1, B7\n")

    answer = run_map(repo)

    assert answer.returncode == 1
    assert answer.stderr == "docs/explain/decisions.md:2: unknown behaviour B7\n"


def test_a_behaviour_listed_twice_is_refused(repo: Path) -> None:
    write(repo / "docs/reference/behaviours.md", LIST + "- **A1** again\n")

    answer = run_map(repo)

    assert answer.returncode == 1
    assert "behaviours.md:6: behaviour A1 is listed 2 times" in answer.stderr


def test_show_names_the_tests_and_the_decisions_of_one_behaviour(repo: Path) -> None:
    write(repo / "docs/explain/decisions.md", "## Why\nCloses: A1\n")
    write(repo / "tests/test_some.py", '@pytest.mark.covers("A1")\ndef test_it(): ...\n')

    answer = run_map(repo, "--show", "A1")

    assert answer.stdout.splitlines() == [
        "A1 (tested) one",
        "  test: tests/test_some.py::test_it",
        "  decision: Why",
    ]


def test_the_table_folds_runs_of_open_numbers(repo: Path) -> None:
    write(repo / "docs/explain/decisions.md", "## Why\nCloses: A2\n")

    lines = run_map(repo).stdout.splitlines()

    assert lines[-1] == "A1 A3-A4"


def open_numbers(repo: Path) -> list[str]:
    """The numbers of `--open`, which prints one per line with its text."""
    return [line.split()[0] for line in run_map(repo, "--open").stdout.splitlines()]


def run_map(repo: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the tool as make does, on another repository."""
    command = [sys.executable, ROOT / "tools/coverage_map.py", "--root", repo, *options]
    return subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=False)


def write(path: Path, text: str) -> None:
    """Write a file together with its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
