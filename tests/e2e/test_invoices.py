"""`examples/invoices`, a domain of another package: installed into a fresh environment, and run.

The package changes nothing under `src/penstock`: an entry point and PENSTOCK_DOMAINS are enough.
"""

import json
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, LiteralString

import httpx
import psycopg
import pytest

from tests.docs.pages import Block, blocks_of
from tests.e2e.command import WAIT_SECONDS, Command, clean_environment, penstock

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "invoices"
PAGE = ROOT / "docs" / "howto" / "add-a-domain.md"

SUFFIXES = {".py", ".sql", ".toml"}

NAMED = {"PENSTOCK_DOMAINS": "slots webhooks invoices"}
SENDER = {"PENSTOCK_INVOICES_SENDER": "billing@example.com"}
INVOICE = {"number": "2030-7", "customer": "acme", "amount_cents": 1250}

INSERT_OLD = """
INSERT INTO invoices.invoice (number, customer, amount_cents, sent_at, sent_from)
VALUES ('old', 'acme', 100, now() - interval '11 years', 'a@b')
"""
READ_INVOICES = "SELECT number, customer, amount_cents, sent_from FROM invoices.invoice"


@pytest.fixture(scope="module")
def interpreter(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Install the example into a fresh environment, without a network, and return its Python.

    What Penstock needs is found in the environment of this test.
    """
    place = tmp_path_factory.mktemp("installed")
    environment = place / "environment"
    run(sys.executable, "-m", "venv", "--without-pip", str(environment))
    python = str(environment / "bin" / "python")
    packages = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"))
    shared = sysconfig.get_path("purelib")
    # Not only the path: Penstock itself may be installed by a .pth file of that folder.
    (packages / "shared.pth").write_text(f"import site; site.addsitedir({shared!r})\n")

    source = place / "invoices"
    shutil.copytree(EXAMPLE, source)
    options = ("--no-deps", "--no-build-isolation", "--no-index", "--quiet")
    run(python, "-m", "pip", "--disable-pip-version-check", "install", *options, str(source))
    # Removed before anything runs: only the installed package can work.
    shutil.rmtree(source)
    return python


def run(*command: str) -> str:
    done = subprocess.run(
        command,
        env=clean_environment({}),
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """The command line of the fresh environment, on a database of the test's own."""

    interpreter: str
    folder: Path
    dsn: str

    def start(
        self, *arguments: str, environment: Mapping[str, str]
    ) -> AbstractContextManager[Command]:
        """Run `penstock …` while the body runs."""
        return penstock(
            *arguments,
            folder=self.folder,
            environment={"PENSTOCK_DATABASE_URL": self.dsn, **environment},
            interpreter=self.interpreter,
        )

    def run(self, *arguments: str, environment: Mapping[str, str] = NAMED) -> tuple[int, list[str]]:
        """Run `penstock …` to its end; return the exit code and what was printed."""
        with self.start(*arguments, environment=environment) as command:
            return command.wait(), command.lines


@pytest.fixture
def installed(interpreter: str, tmp_path: Path, dsn: str) -> Installed:
    return Installed(interpreter=interpreter, folder=tmp_path, dsn=dsn)


def test_an_installed_domain_works_end_to_end(installed: Installed) -> None:
    """A company adds a domain of its own, and edits nothing of Penstock."""
    code, lines = installed.run("migrate")
    assert code == 0
    assert "applied invoices/0001_invoices" in lines
    assert "applied invoices/functions/create_invoice" in lines
    query(installed.dsn, INSERT_OLD)

    with installed.start("up", "--port", "0", environment=NAMED | SENDER) as up:
        url = up.wait_for(r"api +(http://\S+)").group(1)
        key = up.wait_for(r"admin key +(psk_\S+)").group(1)
        assert "invoices" in up.wait_for(r"lanes +(.+)").group(1).split(", ")
        with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {key}"}) as client:
            up.wait_for(r"invoices\.forgotten +invoice_count=1")  # By the service.
            check_that_an_invoice_is_sent(client, up, installed.dsn)
            check_metrics_of_a_waiting_invoice(client, up)
            check_its_error(client)
            assert "/invoices" in client.get("/openapi.json").json()["paths"]
        assert up.stop() == 0

    code, lines = installed.run("invoices", "list", "--json")
    listed = [json.loads(line) for line in lines]
    assert code == 0
    assert [(each["number"], each["sent_from"]) for each in listed] == [
        ("2030-8", "billing@example.com"),
        ("2030-7", "billing@example.com"),
    ]


def check_that_an_invoice_is_sent(client: httpx.Client, up: Command, dsn: str) -> None:
    """The endpoint stores it, the lane's handler sends it."""
    answer = client.post("/invoices", json=INVOICE)
    assert (answer.status_code, answer.json()) == (201, INVOICE)

    up.wait_for(r"invoice\.sent +invoice_id=2030-7")

    assert query(dsn, READ_INVOICES) == [("2030-7", "acme", 1250, "billing@example.com")]


def query(dsn: str, sql: LiteralString) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn, autocommit=True) as db:
        cursor = db.execute(sql)
        return cursor.fetchall() if cursor.description else []


def check_metrics_of_a_waiting_invoice(client: httpx.Client, up: Command) -> None:
    """The counter is counted by the handler, the gauge is read from the database."""
    assert client.patch("/lanes/invoices", json={"enabled": False}).status_code == 200
    assert client.post("/invoices", json=INVOICE).status_code == 201, "a repeat is harmless"
    assert client.post("/invoices", json=INVOICE | {"number": "2030-8"}).status_code == 201

    text = client.get("/metrics").text

    assert "# TYPE invoices_sent_total counter" in text
    assert "\ninvoices_sent_total 1.0\n" in text
    assert "# HELP invoices_open Invoices not sent yet.\n# TYPE invoices_open gauge" in text
    assert "\ninvoices_open 1.0\n" in text
    assert client.patch("/lanes/invoices", json={"enabled": True}).status_code == 200
    up.wait_for(r"invoice\.sent +invoice_id=2030-8")


def check_its_error(client: httpx.Client) -> None:
    """Code and status come with the class of the error."""
    answer = client.post("/invoices", json=INVOICE | {"amount_cents": 1})

    assert answer.status_code == 409
    assert answer.headers["Content-Type"] == "application/problem+json"
    problem = answer.json()
    assert problem["type"] == "urn:penstock:problem:invoice-conflict"
    assert problem["status"] == 409
    assert problem["number"] == "2030-7"
    assert "another customer or amount" in problem["detail"]


def test_doctor_runs_the_check_of_an_installed_domain(installed: Installed) -> None:
    assert installed.run("migrate")[0] == 0

    code, warned = installed.run("doctor")
    assert code == 0
    assert ["warn", "invoices sender", "PENSTOCK_INVOICES_SENDER is not set"] in cells(warned)

    _, chosen = installed.run("doctor", environment=NAMED | SENDER)
    assert ["ok", "invoices sender", "billing@example.com"] in cells(chosen)


def cells(lines: list[str]) -> list[list[str]]:
    return [re.split(r" {2,}", line) for line in lines]


def test_a_wrong_setting_of_an_installed_domain_is_refused_at_start(installed: Installed) -> None:
    """Otherwise it would be found only at the first invoice."""
    wrong = {"PENSTOCK_INVOICES_SENDER": "nobody"}

    code, lines = installed.run("up", "--port", "0", environment=NAMED | wrong)

    assert code == 2
    reason = "PENSTOCK_INVOICES_SENDER: is not an address such as billing@example.com"
    assert lines == [f"penstock: {reason}"]


def test_a_domain_that_nothing_offers_is_refused_with_the_known_names(
    installed: Installed,
) -> None:
    code, lines = installed.run("up", environment={"PENSTOCK_DOMAINS": "slots invoice"})

    assert code == 2
    known = "invoices, mail, outbox, payments, slots, webhooks"
    reason = f"no installed package offers 'invoice'; known: {known}"
    assert lines == [f"penstock: PENSTOCK_DOMAINS: {reason}"]


def test_an_installed_domain_is_not_loaded_unless_it_is_named(installed: Installed) -> None:
    """Installing a package must not change what a process does."""
    code, lines = installed.run("invoices", "list", environment={})
    assert code == 2
    assert "No such command 'invoices'" in lines[0]

    with installed.start("up", "--port", "0", environment={}) as up:
        url = up.wait_for(r"api +(http://\S+)").group(1)
        lanes = up.wait_for(r"lanes +(.+)").group(1).split(", ")
        assert httpx.post(f"{url}/invoices", json=INVOICE).status_code == 404
        assert "invoices" not in httpx.get(f"{url}/metrics").text
        assert up.stop() == 0
    assert "penstock.webhooks" in lanes
    assert "invoices" not in lanes


def test_a_process_can_run_only_an_installed_domain(installed: Installed) -> None:
    """PENSTOCK_DOMAINS also says which of the built-in domains a process runs."""
    alone = {"PENSTOCK_DOMAINS": "invoices"}

    with installed.start("up", "--port", "0", environment=alone) as up:
        assert up.wait_for(r"lanes +(.+)").group(1) == "invoices"
        assert up.stop() == 0


SHOWN = blocks_of(PAGE, "toml", "py", "pgsql")


@pytest.mark.parametrize("block", SHOWN, ids=str)
def test_the_page_shows_the_files_of_the_example(block: Block) -> None:
    """The page is tested because the files that it shows are."""
    files = [path.read_text() for path in EXAMPLE.rglob("*") if path.suffix in SUFFIXES]

    assert len(SHOWN) >= 5
    assert any(block.code in text for text in files), block.code


def test_penstock_does_not_mention_the_example() -> None:
    """A domain of another package needs no change of Penstock."""
    mentions = [
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "src" / "penstock").rglob("*")
        if path.is_file() and path.suffix != ".pyc" and b"invoices" in path.read_bytes().lower()
    ]

    assert mentions == []
    assert find_spec("invoices") is None, "the tests themselves run without the example"
