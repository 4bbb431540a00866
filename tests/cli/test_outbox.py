"""The verbs of the outbox on a real database: output, what is stored, and errors."""

import pytest

from penstock import Penstock
from tests.cli.conftest import Cli
from tests.cli.output import answer, answers

SEND = (
    "outbox", "send", "i-1", "--participant", "ada", "--key", "k-1", "--rail", "simulator",
    "--currency", "EUR", "--destination", '{"iban": "DE89370400440532013000"}',
)  # fmt: skip


@pytest.fixture
async def ready(cli: Cli, dsn: str) -> Cli:
    """Commands on a database with lanes, which the first start of a process creates."""
    async with Penstock(dsn):
        return cli


def test_an_instruction_is_sent_shown_and_listed(ready: Cli) -> None:
    sent = answer(ready(*SEND, "--amount", "12.50", "--json"))
    again = answer(ready(*SEND, "--amount", "12.50", "--json"))

    assert (sent["sequence_id"], sent["is_new"], again["is_new"]) == (1, True, False)
    shown = answer(ready("outbox", "show", sent["outbox_id"], "--json"))
    assert shown["instruction"]["state"] == "PENDING"
    assert (shown["item"]["state"], shown["attempts"]) == ("ready", [])
    listed = answers(ready("outbox", "list", "--participant", "ada", "--json"))
    assert [each["outbox_id"] for each in listed] == [sent["outbox_id"]]
    assert answers(ready("outbox", "list", "--state", "FAILED", "--json")) == []
    assert "nothing was tried yet" in ready("outbox", "show", sent["outbox_id"]).err
    assert "PENDING" in ready("outbox", "list").out


def test_a_conflict_and_bad_input_have_exit_codes_of_their_own(ready: Cli) -> None:
    ready(*SEND, "--amount", "12.50")

    conflict = ready(*SEND, "--amount", "12.51")
    invalid = ready(*SEND, "--amount", "12,50")
    unknown = ready("outbox", "show", "00000000-0000-0000-0000-000000000001")

    assert (conflict.code, invalid.code, unknown.code) == (3, 2, 2)
    assert "with another payload" in conflict.err
    assert "payload.amount" in invalid.err
