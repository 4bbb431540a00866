"""The five jobs of the README and of the first steps, typed while `penstock up` runs."""

import os
import re
import shutil
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from penstock.cli.hints import commands
from penstock.compose.domains import BUILT_IN
from tests.docs.pages import ROOT, blocks_of, commands_of
from tests.e2e.command import penstock
from tests.fault.waiting import POLL_SECONDS

PRINTED = "http://127.0.0.1:8080"
SETTLED = '"status":"SETTLED"'
DOMAINS = ["slots", "webhooks", "mail", "outbox", "payments"]


PAGES = ["README.md", "docs/start/first-steps.md"]


def typed(page: str = "README.md") -> list[str]:
    """Return the commands of the block with the five jobs."""
    return curls(page, "# a slot for an event")


def looked(page: str = "README.md") -> list[str]:
    """Return the commands of the block that looks at what became of them."""
    return curls(page, "curl -s http://127.0.0.1:8080/payments/pay-2")


def curls(page: str, beginning: str) -> list[str]:
    """Return the curl commands of the block with a line that begins like this."""
    (block,) = (
        each
        for each in blocks_of(ROOT / page, "sh")
        if any(line.startswith(beginning) for line in each.code.splitlines())
    )
    return [line for line in commands_of(block) if line.startswith("curl")]


@pytest.mark.parametrize("page", PAGES)
def test_a_first_page_has_one_job_of_each_domain(page: str) -> None:
    assert typed(page) == [command for _, command in commands(PRINTED, BUILT_IN)]
    assert looked(page) == looked()
    assert [domain.name for domain in BUILT_IN] == DOMAINS


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_five_jobs_work_on_a_fresh_database_and_twice(folder: Path) -> None:
    """The second time is a repeat, which must be answered and must pay nothing again."""
    with penstock("up", "--port", "0", folder=folder) as up:
        url = str(up.wait_for(r"api +(http://\S+)").group(1))
        key = str(up.wait_for(r"admin key +(psk_\S+)").group(1))
        for command in typed() * 2:
            answer = run(command.replace(PRINTED, url), key)
            assert '"status":4' not in answer, command
        for _, hint in commands(url, BUILT_IN):
            up.wait_for(rf"^  {re.escape(hint)}$")
        with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {key}"}) as client:
            until(lambda: len(paid(client)) >= 2)
            assert sorted(paid(client)) == ["pay-1", "pay-2"]
            until(lambda: SETTLED in client.get("/payments/pay-2").text)
        payment, ledger = (each.replace(PRINTED, url) for each in looked())
        assert SETTLED in run(payment, key)
        assert run(ledger, key).count('"instruction_id":"pay-2"') == 1
        assert up.stop() == 0


def run(command: str, key: str) -> str:
    """Type a command into a shell; its answer must be one of success."""
    done = subprocess.run(
        f"{command} --fail-with-body",
        shell=True,
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "KEY": key},
    )
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout


def until(is_true: Callable[[], bool]) -> None:
    """Return once the condition holds; the timeout of the test limits the wait."""
    while not is_true():
        threading.Event().wait(POLL_SECONDS)


def paid(client: httpx.Client) -> list[str]:
    """Return what the rail was paid, by instruction."""
    answer = client.get("/outbox/simulator/ledger")
    return [each["instruction_id"] for each in answer.json()["payments"]]
