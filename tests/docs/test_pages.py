"""Every page: links lead somewhere, code is code, and commands are ones that exist."""

import ast
import json
import re
import shlex
from pathlib import Path

import click
import pytest

from penstock.api.metrics import declared_metrics
from penstock.cli.root import command_line
from penstock.compose.domains import BUILT_IN
from tests.api.scene import all_endpoints
from tests.docs.pages import (
    PAGES,
    ROOT,
    Block,
    all_blocks,
    anchors_of,
    commands_of,
    links_of,
    name_of,
    prose_of,
    read,
)

QUICKSTART = ROOT / "examples" / "quickstart.py"
API = "http://127.0.0.1:8080"
MAKEFILE_TARGET = re.compile(r"^([a-z-]+):.*##", re.MULTILINE)
METRIC_NAME = re.compile(r"\b[a-z]+(?:_[a-z]+)+\b(?=[{\[ ])")
FUNCTIONS_OF_PROMQL = {"sum", "rate", "delta"}
SYSTEM_COMMANDS = {"cp", "createdb", "export", "pg_dump", "pg_restore", "psql", "python"}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_link_leads_somewhere(page: Path) -> None:
    for link in links_of(page):
        target, _, anchor = link.partition("#")
        found = (page.parent / target).resolve() if target else page

        assert found.exists(), f"{link} leads nowhere"
        assert found.is_relative_to(ROOT), f"{link} leads out of the repository"
        if anchor:
            assert anchor in anchors_of(found), f"{link}: no such heading"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_line_holds_one_sentence(page: Path) -> None:
    """A changed sentence is then a changed line. Tables and the list of behaviours are exempt."""
    if page.name == "behaviours.md":
        return
    for line in prose_of(page).splitlines():
        if not line.startswith("|"):
            text = re.sub(r"\b(e\.g|i\.e|etc)\.", "", re.sub(r"`[^`]*`|\*\*[^*]*\*\*", "", line))
            assert not re.search(r"[a-z)][.?!] [A-Z]", text), line


@pytest.mark.parametrize("block", all_blocks("python"), ids=str)
def test_python_compiles(block: Block) -> None:
    compile(block.code, str(block), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@pytest.mark.parametrize("block", all_blocks("json"), ids=str)
def test_json_is_json(block: Block) -> None:
    json.loads(block.code)


@pytest.mark.parametrize("block", all_blocks("sh"), ids=str)
def test_a_command_exists_and_takes_its_options(block: Block) -> None:
    """A page that tells a wrong command costs its reader an hour."""
    targets = set(MAKEFILE_TARGET.findall(read("Makefile")))
    for command in commands_of(block):
        words = shlex.split(command, comments=True)
        match Path(words[0]).name:
            case "penstock":
                parse(words[1:])
            case "curl":
                assert asked_by(words) in paths(), command
            case "make":
                assert words[1] in targets, command
            case other:
                assert other in SYSTEM_COMMANDS, command


@pytest.mark.parametrize("block", all_blocks("yaml"), ids=str)
def test_an_alert_watches_a_metric_that_exists(block: Block) -> None:
    """Prometheus says nothing about a rule on a name that nobody exports."""
    expressions = re.findall(r"expr: \|?\n?(.+(?:\n {12}.+)*)", block.code)
    for expression in expressions:
        names = set(METRIC_NAME.findall(expression)) - FUNCTIONS_OF_PROMQL

        assert names, expression
        assert names <= {metric.name for metric in declared_metrics(BUILT_IN)}, expression


@pytest.mark.covers("A71", "E57", "E58", "E59", "E60")
def test_the_alerts_are_written_down() -> None:
    """Rules that everybody would write anew are there to be copied; see above for metrics."""
    rules = {
        number: f"{expression.strip()} for {lasting or '0m'}"
        for number, expression, lasting in re.findall(
            r"alert: \w+ # (\w+)\n +expr: ([^|\n]+|\|\n.+\n.+)\n(?: +for: (\w+))?",
            read("docs/howto/run-in-production.md"),
        )
    }

    assert {number: " ".join(rule.split()) for number, rule in rules.items()} == {
        "A71": 'dispatch_queue_depth{status="READY"} > 10000 for 5m',
        "A72": "rate(dispatch_workflow_start_failures_total[5m]) > 5 for 2m",
        "E57": "oldest_pending_age_seconds > 300 for 2m",
        "E58": "delta(dlq_depth[15m]) > 10 for 0m",
        "E59": "stuck_dispatching_count > 0 for 1m",
        "E60": '| sum by (lane) (rate(attempts_total{state="retry"}[10m])) '
        "/ sum by (lane) (rate(attempts_total[10m])) > 0.5 for 10m",
    }


def test_the_first_example_is_the_one_that_is_run() -> None:
    """tests/e2e/test_examples.py runs the file; here it is shown to be the same."""
    (shown, *_) = (block for block in all_blocks("python") if block.page == ROOT / "README.md")

    assert shown.code == QUICKSTART.read_text(encoding="utf-8")


def test_every_page_is_in_a_section() -> None:
    """A page that the index does not name is found by nobody."""
    index = ROOT / "docs" / "README.md"
    named = {(index.parent / link.partition("#")[0]).resolve() for link in links_of(index)}
    on_shelves = {
        page
        for shelf in ("start", "howto", "explain", "reference")
        for page in (ROOT / "docs" / shelf).glob("*.md")
    }

    assert on_shelves <= named


def test_every_record_is_in_the_list() -> None:
    index = ROOT / "docs" / "adr" / "README.md"
    named = {link for link in links_of(index) if link.startswith("0")}

    assert {page.name for page in index.parent.glob("0*.md")} == named


def parse(words: list[str]) -> None:
    """Parse a command line as click does, without running it."""
    command: click.Command = command_line()
    path = ["penstock"]
    while isinstance(command, click.Group):
        if command.invoke_without_command and words[0] not in command.commands:
            break
        path.append(words[0])
        command = command.commands[words[0]]
        words = words[1:]
    with command.make_context(" ".join(path), words):
        pass


def paths() -> set[tuple[str, str]]:
    return {(each.method, re.sub(r"{\w+}", "*", each.path)) for each in all_endpoints()}


def asked_by(words: list[str]) -> tuple[str, str]:
    """Return the method and the path that a curl command asks for."""
    method = "POST" if {"-d", "--json"} & set(words) else "GET"
    if "-X" in words:
        method = words[words.index("-X") + 1]
    (url,) = (word for word in words if word.startswith(API))
    path = url.removeprefix(API).partition("?")[0]
    return method, generalised(path)


def generalised(path: str) -> str:
    """Return the path with what stands for a name or an id as a star."""
    known = {pattern for _, pattern in paths()}
    if path in known:
        return path
    fitting = [each for each in known if re.fullmatch(each.replace("*", "[^/]+"), path)]
    return max(fitting, key=len, default=path)
