"""The verbs of payments on a real database: output, what is stored, and errors."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from penstock import Penstock
from penstock.testing import FakeClock, run_due
from tests.cli.conftest import Cli
from tests.cli.output import answer, answers
from tests.database import run_sql

SCHEDULE = (
    "payment", "schedule", "p-1", "--currency", "EUR", "--debtor", "Ada",
    "--debtor-iban", "DE89370400440532013000", "--creditor", "Homes",
    "--creditor-iban", "FR1420041010050500013M02606", "--participant", "ada", "--rail", "simulator",
    "--at", "2031-01-31T16:00:00Z",
)  # fmt: skip


@pytest.fixture
async def ready(cli: Cli, dsn: str) -> Cli:
    """Commands on a database with lanes, which the first start of a process creates."""
    async with Penstock(dsn):
        return cli


@pytest.mark.covers("A96")
def test_a_payment_is_scheduled_shown_listed_moved_and_cancelled(ready: Cli) -> None:
    first = answer(ready(*SCHEDULE, "--amount", "12.50", "--json"))
    again = answer(ready(*SCHEDULE, "--amount", "12.5", "--json"))

    assert (first["status"], first["is_new"], again["is_new"]) == ("SCHEDULED", True, False)
    assert first["scheduled_at"] == "2031-01-31T16:00:00Z"
    shown = answer(ready("payment", "show", "p-1", "--json"))
    assert (shown["payment"]["amount"], shown["item"]["state"]) == ("12.50", "scheduled")
    assert "12.50" in ready("payment", "show", "p-1").out
    assert ready("payment", "reschedule", "p-1", "2031-02-01T16:00:00Z").code == 0
    listed = answers(ready("payment", "list", "--status", "SCHEDULED", "--json"))
    assert [each["scheduled_at"] for each in listed] == ["2031-02-01T16:00:00Z"]
    assert ready("payment", "cancel", "p-1", "--reason", "wrong amount").code == 0
    assert "CANCELLED" in ready("payment", "list").out
    assert answers(ready("payment", "list", "--status", "SCHEDULED", "--json")) == []


async def test_a_filter_finds_a_payment_behind_thousands_of_others(ready: Cli, dsn: str) -> None:
    """An operator who looks for payments in doubt must not read that there are none."""
    await run_sql(
        dsn,
        """
        INSERT INTO penstock.payment (
            payment_id, item_type, status, amount, currency, debtor, creditor, participant_id,
            rail_type, scheduled_at, content_hash, created_by, created_at, updated_at)
        SELECT 'p-' || n, 'PAYMENT', CASE WHEN n <= 3 THEN 'UNKNOWN' ELSE 'SETTLED' END, 12.50,
            'EUR', '{}', '{}', 'ada', 'simulator', now() + n * interval '1 second',
            repeat('a', 64), 'test', now(), now()
        FROM generate_series(1, 2500) AS n
        """,
    )

    all_ = ready("payment", "list", "--status", "UNKNOWN", "--limit", "3", "--json")
    some = ready("payment", "list", "--status", "UNKNOWN", "--limit", "2", "--json")
    unfiltered = ready("payment", "list", "--limit", "2")

    assert [each["payment_id"] for each in answers(all_)] == ["p-3", "p-2", "p-1"]
    assert [each["payment_id"] for each in answers(some)] == ["p-3", "p-2"]
    assert "there are more" not in all_.err
    assert "there are more payments: raise --limit" in some.err
    assert "there are more payments: raise --limit" in unfiltered.err


def test_a_payment_is_shown_with_its_slot(ready: Cli) -> None:
    """As over REST, and in the text for people."""
    ready("lane", "set", "payment", "slot_pool=default")
    at = ("--at", "+2h")
    scheduled = answer(ready(*SCHEDULE, "--amount", "12.50", *at, "--json"))

    shown = answer(ready("payment", "show", "p-1", "--json"))
    text = ready("payment", "show", "p-1").out

    assert shown["slot"]["pool"] == "default"
    assert shown["slot"]["scheduled_at"] == scheduled["scheduled_at"]
    assert (shown["attempts"], shown["instruction"], shown["events"]) == ([], None, [])
    assert ["slot_pool", "default"] in [line.split() for line in text.splitlines()]


async def test_a_payment_that_waits_for_its_rail_says_so(ready: Cli, dsn: str) -> None:
    ready(*SCHEDULE, "--amount", "12.50", "--rail", "nowhere")
    async with Penstock(dsn) as app:
        await run_due(app, FakeClock(datetime(2031, 1, 31, 17, tzinfo=UTC)))

    text = ready("payment", "show", "p-1").out

    assert "no rail nowhere" in text


def test_a_conflict_and_bad_input_have_exit_codes_of_their_own(ready: Cli) -> None:
    ready(*SCHEDULE, "--amount", "12.50")

    conflict = ready(*SCHEDULE, "--amount", "12.51")
    invalid = ready(*SCHEDULE, "--amount", "12,50")
    unknown = ready("payment", "show", "nobody")
    ready("payment", "cancel", "p-1")
    cancelled = ready("payment", "reschedule", "p-1", "+1h")

    assert (conflict.code, invalid.code, unknown.code, cancelled.code) == (3, 2, 2, 3)
    assert "exists with other content" in conflict.err
    assert "CANCELLED and cannot be changed" in cancelled.err


def test_an_address_that_mail_refuses_is_refused(ready: Cli) -> None:
    refused = ready(*SCHEDULE, "--amount", "12.50", "--mail", "a@b")

    assert refused.code == 2
    assert "notify.mail: is not a valid address" in refused.err
    assert ready("payment", "show", "p-1").code == 2


def test_limits_are_set_listed_and_removed(ready: Cli) -> None:
    assert ready("payment", "limit", "set", "EUR", "--amount-max", "12.40").code == 0
    assert ready("payment", "limit", "set", "EUR", "--participant", "bob", "--day-amount-max", "9")
    refused = ready(*SCHEDULE, "--amount", "12.50")
    listed = answers(ready("payment", "limit", "list", "--json"))
    removed = ready("payment", "limit", "remove", "EUR")

    assert (refused.code, removed.code) == (3, 0)
    assert "over 12.40 EUR" in refused.err
    assert [(each["participant_id"], each["amount_max"]) for each in listed] == [
        (None, "12.40"), ("bob", None)
    ]  # fmt: skip
    assert ready(*SCHEDULE, "--amount", "12.50").code == 0
    assert ready("payment", "limit", "remove", "EUR").code == 2
    assert ready("payment", "limit", "set", "EUR").code == 2
    assert ready("payment", "limit", "set", "EUR", "--amount-max", "ten").code == 2


def test_a_part_of_a_rule_is_set_and_the_other_stays(ready: Cli, tmp_path: Path) -> None:
    """A person who allows duplicates does not want to open the rail at night."""
    file = tmp_path / "calendar.json"
    file.write_text(json.dumps({"timeZone": "Europe/Paris", "closedDays": ["2031-01-31"]}))
    assert ready("payment", "rule", "set", "PAYMENT", "--calendar", str(file)).code == 0
    assert ready("payment", "rule", "set", "PAYMENT", "--refuse-duplicates").code == 0

    rule = answer(ready("payment", "rule", "list", "--json"))
    scheduled = answer(ready(*SCHEDULE, "--amount", "12.50", "--json"))
    ready("payment", "rule", "set", "PAYMENT", "--no-calendar")

    assert (rule["refuses_duplicates"], rule["calendar"]["closedDays"]) == (True, ["2031-01-31"])
    assert scheduled["scheduled_at"] == "2031-01-31T23:00:00Z"
    assert answer(ready("payment", "rule", "list", "--json"))["calendar"] is None
    assert ready("payment", "rule", "remove", "PAYMENT").code == 0
    assert answers(ready("payment", "rule", "list", "--json")) == []


def test_an_invalid_rule_is_refused(ready: Cli, tmp_path: Path) -> None:
    file = tmp_path / "calendar.json"
    file.write_text(json.dumps({"timeZone": "Mars/Olympus"}))

    invalid = ready("payment", "rule", "set", "PAYMENT", "--calendar", str(file))

    assert (invalid.code, ready("payment", "rule", "set", "PAYMENT").code) == (2, 2)
    assert "calendar.timeZone" in invalid.err
    assert ready("payment", "rule", "set", "INVOICE", "--refuse-duplicates").code == 2
