"""The coverage map: the list is whole, marks and decisions are found, and states are right."""

import json
import re
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import NamedTuple

import pytest

from tools.coverage_map import main

ROOT = Path(__file__).resolve().parents[2]
STATES = ("shown", "kernel", "changed", "decided", "open")
DOMAINS = {"A": "payments", "B": "webhooks", "C": "mail", "D": "slots", "E": "outbox"}
SIZES = {"A": 99, "B": 72, "C": 40, "D": 96, "E": 79}

LIST = """\
## A. Payments

Domain: `payments`, integration `temporal`

- **A1** one
- **A2** two
- **A3** three
- **A4** (open question) four
"""


class Answer(NamedTuple):
    """What the tool has printed, and how it has ended."""

    stdout: str
    stderr: str
    returncode: int


@pytest.fixture(scope="module")
def ours() -> subprocess.CompletedProcess[str]:
    """The map of this repository, made as make does. To read all its tests takes half a second."""
    command = [sys.executable, ROOT / "tools/coverage_map.py", "--root", ROOT, "--json"]
    return subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=False)


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A repository with four behaviours of a domain that has code, no decision and no test."""
    write(tmp_path / "src/penstock/domains/payments/__init__.py", "")
    write(tmp_path / "docs/reference/behaviours.md", LIST)
    write(tmp_path / "docs/explain/decisions.md", "# Decisions\n")
    return tmp_path


def test_the_list_holds_every_number_once() -> None:
    """Tests and decisions refer to the numbers for years; a lost or repeated one misleads."""
    text = (ROOT / "docs/reference/behaviours.md").read_text(encoding="utf-8")

    numbers = re.findall(r"^- \*\*(\w+)\*\* \S", text, flags=re.MULTILINE)

    expected = [f"{letter}{n}" for letter, size in SIZES.items() for n in range(1, size + 1)]
    assert len(numbers) == 386
    assert sorted(numbers) == sorted(expected)


def test_marks_and_decisions_of_this_repository_name_listed_behaviours(
    ours: subprocess.CompletedProcess[str],
) -> None:
    assert ours.returncode == 0, ours.stderr
    assert json.loads(ours.stdout)["total"]["listed"] == 386


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
    """A mark on a helper function proves nothing."""
    write(repo / "tests/test_some.py", '@pytest.mark.covers("A2")\ndef check_it(): ...\n')

    assert open_numbers(repo) == ["A1", "A2", "A3", "A4"]


def test_a_decision_closes_what_it_lists(repo: Path) -> None:
    write(repo / "docs/explain/decisions.md", "## Why\nCloses: A1, A4\nBecause.\n")

    assert open_numbers(repo) == ["A2", "A3"]


SHOWING = [
    "tests/domains/payments/test_some.py",
    "tests/integrations/temporal/test_some.py",
    "tests/e2e/test_some.py",
    "tests/cli/test_payments.py",
    "tests/fault/test_payments_kill.py",
    "tests/conformance/test_temporal_client.py",
]
NOT_SHOWING = [
    "tests/kernel/test_some.py",
    "tests/kernel/test_payments.py",
    "tests/unit/base/test_payments.py",
    "tests/model/test_payments.py",
    "tests/api/test_some.py",
    "tests/cli/test_paymentsystem.py",
    "tests/domains/mail/test_payments.py",
    "tests/integrations/smtp/test_payments.py",
    "tests/test_some.py",
]


@pytest.mark.parametrize("path", SHOWING)
def test_a_test_through_the_interface_of_the_domain_shows_a_behaviour(
    repo: Path, path: str
) -> None:
    mark(repo / path, "A1")

    assert counts(repo) == {"shown": 1, "open": 3}


@pytest.mark.parametrize("path", NOT_SHOWING)
def test_a_test_of_the_mechanism_does_not_show_a_behaviour(repo: Path, path: str) -> None:
    """A queue that keeps an order is not yet a rail outbox that does."""
    mark(repo / path, "A1")

    assert counts(repo) == {"kernel": 1, "open": 3}


@pytest.mark.parametrize("path", SHOWING)
def test_a_domain_without_code_has_nothing_shown(repo: Path, path: str) -> None:
    (repo / "src/penstock/domains/payments/__init__.py").unlink()
    mark(repo / path, "A1", "A2")
    decide(repo, "A2")

    assert counts(repo) == {"kernel": 2, "open": 2}


def test_a_decision_whose_replacement_is_shown_is_a_change(repo: Path) -> None:
    decide(repo, "A1", "A2", "A3")
    mark(repo / "tests/domains/payments/test_some.py", "A1")
    mark(repo / "tests/kernel/test_some.py", "A1", "A2")

    assert states(repo) == {"changed": ["A1"], "kernel": ["A2"], "decided": ["A3"], "open": ["A4"]}


def test_each_behaviour_has_one_state(repo: Path) -> None:
    decide(repo, "A1")
    mark(repo / "tests/e2e/test_some.py", "A1", "A2")

    total = json.loads(run_map(repo, "--json").stdout)["total"]

    assert total == {
        "listed": 4, "shown": 1, "kernel": 0, "changed": 1, "decided": 0, "open": 2,
    }  # fmt: skip


def test_a_section_without_a_domain_is_refused(repo: Path) -> None:
    """Nothing of it could ever be shown."""
    write(repo / "docs/reference/behaviours.md", LIST + "\n## B. Webhooks\n- **B1** one\n")

    answer = run_map(repo)

    assert answer.returncode == 1
    assert answer.stderr == "docs/reference/behaviours.md:10: section B names no domain\n"


def test_our_own_domains_show_theirs_and_those_without_code_show_nothing(
    ours: subprocess.CompletedProcess[str],
) -> None:
    sections = json.loads(ours.stdout)["sections"]

    domains = ROOT / "src/penstock/domains"
    has_code = {letter: (domains / name).is_dir() for letter, name in DOMAINS.items()}
    assert {letter: sections[letter]["shown"] > 0 for letter in DOMAINS} == has_code


def test_an_unknown_number_in_a_mark_is_refused_with_its_place(repo: Path) -> None:
    write(repo / "tests/test_some.py", '\n@pytest.mark.covers("A1", "A9")\ndef test_it(): ...\n')

    answer = run_map(repo)

    assert answer.returncode == 1
    assert answer.stderr == "tests/test_some.py:2: unknown behaviour A9\n"


def test_a_number_that_is_not_a_plain_string_is_refused(repo: Path) -> None:
    """The map reads the source without running it, so a name or a star would be missed silently."""
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
    assert "behaviours.md:9: behaviour A1 is listed 2 times" in answer.stderr


def test_show_names_the_tests_and_the_decisions_of_one_behaviour(repo: Path) -> None:
    decide(repo, "A1")
    mark(repo / "tests/e2e/test_some.py", "A1")
    mark(repo / "tests/kernel/test_some.py", "A1")

    answer = run_map(repo, "--show", "A1")

    assert answer.stdout.splitlines() == [
        "A1 (changed) one",
        "  payments: tests/e2e/test_some.py::test_it",
        "  kernel: tests/kernel/test_some.py::test_it",
        "  decision: Why",
    ]


def test_the_table_folds_runs_of_open_numbers(repo: Path) -> None:
    write(repo / "docs/explain/decisions.md", "## Why\nCloses: A2\n")

    lines = run_map(repo).stdout.splitlines()

    assert lines[-1] == "A1 A3-A4"


def states(repo: Path) -> dict[str, list[str]]:
    """The numbers in each state that has any, as `--state` prints them."""
    found = {state: numbers(repo, "--state", state) for state in STATES}
    return {state: listed for state, listed in found.items() if listed}


def counts(repo: Path) -> dict[str, int]:
    """The states that have any, with how many, as the JSON says."""
    total = json.loads(run_map(repo, "--json").stdout)["total"]
    return {state: total[state] for state in STATES if total[state]}


def open_numbers(repo: Path) -> list[str]:
    return numbers(repo, "--open")


def numbers(repo: Path, *options: str) -> list[str]:
    """The numbers that the tool prints, one per line with its text."""
    lines = run_map(repo, *options).stdout.splitlines()
    return [line.split()[0] for line in lines if line]


def run_map(repo: Path, *options: str) -> Answer:
    """Run the tool on another repository, in this process: one of its own takes 70 ms of CPU."""
    with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
        code = main(["--root", str(repo), *options])
    return Answer(out.getvalue(), err.getvalue(), code)


def mark(path: Path, *numbers: str) -> None:
    """Write a test that covers these numbers."""
    named = ", ".join(f'"{number}"' for number in numbers)
    write(path, f"@pytest.mark.covers({named})\ndef test_it(): ...\n")


def decide(repo: Path, *numbers: str) -> None:
    """Write one decision that closes these numbers."""
    write(repo / "docs/explain/decisions.md", f"## Why\nCloses: {', '.join(numbers)}\nSo.\n")


def write(path: Path, text: str) -> None:
    """Write a file together with its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
