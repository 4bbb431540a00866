#!/usr/bin/env python
"""Show for each behaviour whether the domain shows it, only the kernel does, or nothing does.

Reads the list in docs/reference/behaviours.md, the covers marks under tests/ and the Closes lines
of docs/explain/decisions.md. It counts what is written; whether the tests pass, pytest says.

Each section of the list names its domain and the integrations of that domain. A behaviour is

    shown    a marked test goes through the domain's own interface
    kernel   only tests of the mechanism are marked; a decision may exist as well
    changed  a decision replaces the behaviour, and a test as for `shown` shows the replacement
    decided  a decision alone
    open     nothing

A test goes through the domain's own interface when the domain has code in src/penstock/domains and
the test file is one of

    tests/domains/<domain>/...
    tests/integrations/<integration of the domain>/...
    tests/e2e/...                     whole processes
    tests/<folder>/test_<name>.py     or test_<name>_*.py, where <name> is the domain or one of its
                                      integrations, and <folder> is not one of MECHANISM
"""

import argparse
import ast
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

BEHAVIOURS = Path("docs/reference/behaviours.md")
DECISIONS = Path("docs/explain/decisions.md")
TESTS = Path("tests")
DOMAINS = Path("src/penstock/domains")

STATES = ("shown", "kernel", "changed", "decided", "open")
# Folders whose tests call the kernel and its neighbours directly, whatever their files are named.
MECHANISM = frozenset({"kernel", "model", "unit"})

_SECTION = re.compile(r"## ([A-Z])\. (.+)")
_DOMAIN = re.compile(r"Domain: (.+)")
_NAME = re.compile(r"`(\w+)`")
_BEHAVIOUR = re.compile(r"- \*\*([A-Z]\d+)\*\* (.+)")
_DECISION = re.compile(r"## (.+)")
_CLOSES = re.compile(r"Closes:(.+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One part of the list, with the names of its domain and of that domain's integrations."""

    letter: str
    title: str
    place: str
    domain: str
    integrations: frozenset[str]
    is_built: bool  # The domain has code.

    def is_shown_by(self, test: str) -> bool:
        """Return whether a test (path::name) goes through the interface of this domain."""
        if not self.is_built:
            return False
        match Path(test.partition("::")[0]).parts:
            case (_, "domains", name, *_):
                return name == self.domain
            case (_, "integrations", name, *_):
                return name in self.integrations
            case (_, "e2e", *_):
                return True
            case (_, folder, *_, file) if folder not in MECHANISM:
                return any(
                    _is_named_after(file, name) for name in {self.domain, *self.integrations}
                )
            case _:
                return False


def _is_named_after(file: str, name: str) -> bool:
    return file == f"test_{name}.py" or file.startswith(f"test_{name}_")


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """One numbered line of the list; its section is the letter of its number."""

    number: str
    text: str
    place: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A number named by a test or a decision: `by` is its name, `place` is file:line."""

    number: str
    by: str
    place: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CoverageMap:
    """Everything that was read, in the order of the files."""

    sections: dict[str, Section]
    behaviours: list[Behaviour]
    tests: list[Claim]
    decisions: list[Claim]

    def state(self, behaviour: Behaviour) -> str:
        """Return one of STATES."""
        section = self.sections[behaviour.number[0]]
        tests = [claim.by for claim in self.tests if claim.number == behaviour.number]
        is_decided = any(claim.number == behaviour.number for claim in self.decisions)
        if any(section.is_shown_by(test) for test in tests):
            return "changed" if is_decided else "shown"
        if tests:
            return "kernel"
        return "decided" if is_decided else "open"


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0, or 1 if the list is not whole or something names a number that is not in it."""
    options = _options(arguments)
    read = read_map(options.root)
    problems = list(problems_in(read))
    if options.show and options.show not in {each.number for each in read.behaviours}:
        problems.append(f"--show: unknown behaviour {options.show}")
    if problems:
        print("\n".join(problems), file=sys.stderr)
        return 1
    if options.show:
        print(shown(read, options.show))
    elif options.json:
        print(json.dumps(summary(read), indent=2))
    elif options.state:
        found = _in_state(read, options.state)
        print("\n".join(f"{each.number} {each.text}" for each in found))
    else:
        _print_table(read)
    return 0


class _Options(argparse.Namespace):
    root: Path
    json: bool
    state: str | None
    show: str | None


def _options(arguments: Sequence[str] | None) -> _Options:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--json", action="store_true", help="print the counts and the open numbers as JSON"
    )
    what.add_argument(
        "--state", choices=STATES, help="print the behaviours in this state, one per line"
    )
    what.add_argument(
        "--open", dest="state", action="store_const", const="open", help="short for --state open"
    )
    what.add_argument(
        "--show", metavar="NUMBER", help="print the tests and decisions of one behaviour"
    )
    parser.add_argument(
        "--root",
        type=Path,
        default=Path(__file__).resolve().parent.parent,
        help="the repository to read (default: the one this file is in)",
    )
    return parser.parse_args(arguments, namespace=_Options())


def read_map(root: Path) -> CoverageMap:
    """Read the list, the marks and the decisions of one repository."""
    return CoverageMap(
        sections={section.letter: section for section in _sections(root)},
        behaviours=list(_behaviours(root)),
        tests=list(_test_claims(root)),
        decisions=list(_decision_claims(root)),
    )


def _sections(root: Path) -> Iterator[Section]:
    heading: re.Match[str] | None = None
    names: list[str] = []
    place = ""
    for at, line in [*_lines(root / BEHAVIOURS), (0, "## end")]:
        if line.startswith("## "):
            if heading is not None:
                yield _section(root, heading, names=names, place=place)
            heading, names, place = _SECTION.fullmatch(line), [], f"{BEHAVIOURS}:{at}"
        elif found := _DOMAIN.fullmatch(line):
            names = _NAME.findall(found[1])


def _section(root: Path, heading: re.Match[str], *, names: list[str], place: str) -> Section:
    domain, *integrations = names or [""]
    return Section(
        letter=heading[1],
        title=heading[2],
        place=place,
        domain=domain,
        integrations=frozenset(integrations),
        is_built=bool(domain) and any((root / DOMAINS / domain).glob("*.py")),
    )


def _behaviours(root: Path) -> Iterator[Behaviour]:
    for at, line in _lines(root / BEHAVIOURS):
        if found := _BEHAVIOUR.fullmatch(line):
            yield Behaviour(number=found[1], text=found[2], place=f"{BEHAVIOURS}:{at}")


def _decision_claims(root: Path) -> Iterator[Claim]:
    title = ""
    for at, line in _lines(root / DECISIONS):
        if found := _DECISION.fullmatch(line):
            title = found[1]
        elif found := _CLOSES.fullmatch(line):
            for number in found[1].split(","):
                yield Claim(number=number.strip(), by=title, place=f"{DECISIONS}:{at}")


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    return enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)


def _test_claims(root: Path) -> Iterator[Claim]:
    for path in sorted((root / TESTS).rglob("test_*.py")):
        name = path.relative_to(root).as_posix()
        tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
        yield from _claims_in(tree.body, name, inherited=[])


def _claims_in(body: list[ast.stmt], owner: str, *, inherited: list[ast.expr]) -> Iterator[Claim]:
    # Only what pytest would run can claim: a mark on a class or a module goes down to its tests.
    marks = [*inherited, *_pytestmark(body)]
    for node in body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() if node.name.startswith("test"):
                yield from _claims([*marks, *node.decorator_list], owner, name=node.name)
            case ast.ClassDef() if node.name.startswith("Test"):
                nested = [*marks, *node.decorator_list]
                yield from _claims_in(node.body, f"{owner}::{node.name}", inherited=nested)
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if name.startswith("Test"):
                # Hypothesis makes a test of a state machine so: TestModel = Model.TestCase.
                yield from _claims([*marks, value], owner, name=name)
            case _:
                pass


def _pytestmark(body: list[ast.stmt]) -> Iterator[ast.expr]:
    for node in body:
        match node:
            case ast.Assign(targets=[ast.Name(id="pytestmark")], value=value):
                yield value
            case ast.AnnAssign(target=ast.Name(id="pytestmark"), value=ast.expr() as value):
                yield value
            case _:
                pass


def _claims(marks: list[ast.expr], owner: str, *, name: str) -> Iterator[Claim]:
    file = owner.partition("::")[0]
    for node in (inner for mark in marks for inner in ast.walk(mark)):
        match node:
            case ast.Call(func=ast.Attribute(attr="covers", value=base)) if _is_mark(base):
                for arg in node.args:
                    place = f"{file}:{arg.lineno}"
                    yield Claim(number=_number(arg), by=f"{owner}::{name}", place=place)
            case _:
                pass


def _is_mark(node: ast.expr) -> bool:
    return ast.unparse(node) in {"pytest.mark", "mark"}


def _number(arg: ast.expr) -> str:
    # Anything but a plain string comes back as its source, which no list has: so it is refused.
    if isinstance(arg, ast.Constant) and isinstance(arg.value, str):
        return arg.value
    return ast.unparse(arg)


def problems_in(read: CoverageMap) -> Iterator[str]:
    """Yield a sentence, with file and line, for each fault of the list and each unknown number."""
    counts = Counter(each.number for each in read.behaviours)
    for section in read.sections.values():
        if not section.domain:
            yield f"{section.place}: section {section.letter} names no domain"
    for each in read.behaviours:
        if counts[each.number] > 1:
            yield f"{each.place}: behaviour {each.number} is listed {counts[each.number]} times"
        if each.number[0] not in read.sections:
            yield f"{each.place}: behaviour {each.number} has no section"
    # A mark on a class or module comes once per test in it; one line is enough to mend it.
    unknown = (claim for claim in [*read.tests, *read.decisions] if claim.number not in counts)
    yield from dict.fromkeys(f"{each.place}: unknown behaviour {each.number}" for each in unknown)


def summary(read: CoverageMap) -> dict[str, object]:
    """Return the counts per section and in all, and every open number."""
    return {
        "sections": {
            letter: {"title": section.title, **_counts(read, _of(read, letter))}
            for letter, section in read.sections.items()
        },
        "total": _counts(read, read.behaviours),
        "open": [each.number for each in _in_state(read, "open")],
    }


def shown(read: CoverageMap, number: str) -> str:
    """Return one behaviour, its state, and the tests and decisions that name it."""
    behaviour = next(each for each in read.behaviours if each.number == number)
    section = read.sections[number[0]]
    lines = [f"{number} ({read.state(behaviour)}) {behaviour.text}"]
    # A test may be marked twice with one number, by itself and by its class.
    tests = dict.fromkeys(claim.by for claim in read.tests if claim.number == number)
    for test in tests:
        lines += [f"  {section.domain if section.is_shown_by(test) else 'kernel'}: {test}"]
    decisions = dict.fromkeys(claim.by for claim in read.decisions if claim.number == number)
    return "\n".join([*lines, *(f"  decision: {decision}" for decision in decisions)])


def compact(numbers: Iterable[str]) -> str:
    """Return numbers of one section with runs folded: A1 A2 A3 A7 becomes A1-A3 A7."""
    runs: list[tuple[str, int, int]] = []
    for letter, value in sorted((number[0], int(number[1:])) for number in numbers):
        if runs and runs[-1][2] + 1 == value:
            runs[-1] = (letter, runs[-1][1], value)
        else:
            runs.append((letter, value, value))
    return " ".join(_run(*run) for run in runs)


def _run(letter: str, first: int, last: int) -> str:
    return f"{letter}{first}" if first == last else f"{letter}{first}-{letter}{last}"


def _print_table(read: CoverageMap) -> None:
    console = Console(highlight=False)
    table = Table("section", box=None, pad_edge=False)
    for column in ("listed", *STATES):
        table.add_column(column, justify="right")
    for letter, section in read.sections.items():
        table.add_row(f"{letter}  {section.title}", *_cells(read, _of(read, letter)))
    table.add_section()
    table.add_row("total", *_cells(read, read.behaviours), style="bold")
    console.print(table)
    for letter, section in read.sections.items():
        found = [each.number for each in _in_state(read, "open") if each.number[0] == letter]
        if found:
            console.print(f"\n{section.title}, open:\n{compact(found)}")


def _cells(read: CoverageMap, behaviours: list[Behaviour]) -> list[str]:
    return [str(count) for count in _counts(read, behaviours).values()]


def _counts(read: CoverageMap, behaviours: list[Behaviour]) -> dict[str, int]:
    states = Counter(read.state(each) for each in behaviours)
    return {"listed": len(behaviours), **{state: states[state] for state in STATES}}


def _of(read: CoverageMap, letter: str) -> list[Behaviour]:
    return [each for each in read.behaviours if each.number[0] == letter]


def _in_state(read: CoverageMap, state: str) -> list[Behaviour]:
    return [each for each in read.behaviours if read.state(each) == state]


if __name__ == "__main__":
    sys.exit(main())
