"""The verbs that hold payments back and let them leave, on a real database."""

import json
from pathlib import Path

import pytest

from penstock import Penstock
from tests.cli.conftest import Cli
from tests.cli.output import answer, answers
from tests.domains.outbox.control.control_scene import add_rail

WHY = ("--reason", "because")


@pytest.fixture
async def ready(cli: Cli, dsn: str) -> Cli:
    """Commands on a database with lanes, which the first start of a process creates."""
    async with Penstock(dsn) as app:
        await add_rail(app, "sepa")
        return cli


def send(cli: Cli, instruction_id: str, amount: str = "500") -> str:
    sent = cli(
        "outbox", "send", instruction_id, "--participant", "shop", "--key", instruction_id,
        "--rail", "sepa", "--currency", "EUR", "--amount", amount,
        "--destination", '{"iban": "DE89370400440532013000"}', "--json",
    )  # fmt: skip
    return answer(sent)["outbox_id"]


def test_a_rail_is_stopped_listed_and_started(ready: Cli) -> None:
    assert ready("outbox", "stop", "--rail", "sepa", *WHY).code == 0
    listed = answer(ready("outbox", "switches", "--json"))
    assert (listed["scope"], listed["name"], listed["reason"]) == ("rail", "sepa", "because")

    assert ready("outbox", "start", "--rail", "sepa", *WHY).code == 0
    assert answers(ready("outbox", "switches", "--json")) == []
    assert ready("outbox", "start", "--rail", "sepa", *WHY).code == 2


def test_a_mistyped_rail_or_currency_is_refused_and_an_unused_participant_is_named(
    ready: Cli,
) -> None:
    """A switch on a name that nothing has looks like one that works."""
    stopped = ready("outbox", "stop", "--rail", "spea", *WHY)
    limited = ready("outbox", "limit", "set", "EUX", "--all", "--amount-max", "1")
    unused = [
        ready("outbox", "stop", "--participant", "shpo", *WHY),
        ready("outbox", "suspend", "shpo", *WHY),
        ready("outbox", "limit", "set", "EUR", "--participant", "shpo", "--amount-max", "1"),
        ready("outbox", "policy", "set", "suspend", "--participant", "shpo"),
    ]

    assert (stopped.code, limited.code) == (2, 2)
    assert "there is no rail 'spea'" in stopped.err
    assert "currency" in limited.err
    for each in unused:
        assert each.code == 0
        assert "participant 'shpo' has sent no instruction yet" in each.err


def test_a_switch_needs_exactly_one_subject_and_a_reason(ready: Cli) -> None:
    assert ready("outbox", "stop", *WHY).code == 2
    assert ready("outbox", "stop", "--all", "--rail", "sepa", *WHY).code == 2
    assert ready("outbox", "stop", "--all").code == 2


def test_a_participant_is_suspended_listed_and_resumed(ready: Cli) -> None:
    assert ready("outbox", "suspend", "shop", *WHY).code == 0
    assert answer(ready("outbox", "suspensions", "--json"))["participant_id"] == "shop"

    assert ready("outbox", "resume", "shop", *WHY).code == 0
    assert ready("outbox", "resume", "shop", *WHY).code == 2


def test_limits_policies_and_calendars_are_set_and_listed(ready: Cli, tmp_path: Path) -> None:
    file = tmp_path / "sepa.json"
    file.write_text(json.dumps({"timeZone": "Europe/Berlin", "cutOff": "15:00"}))

    assert ready("outbox", "limit", "set", "EUR", "--all", "--approval-above", "99.50").code == 0
    assert ready("outbox", "policy", "set", "suspend", "--rail", "sepa").code == 0
    assert ready("outbox", "calendar", "set", "sepa", str(file)).code == 0

    assert answer(ready("outbox", "limit", "list", "--json"))["approval_above"] == "99.50"
    ready("outbox", "limit", "set", "EUR", "--all", "--approval-above", "10000")
    assert answer(ready("outbox", "limit", "list", "--json"))["approval_above"] == "10000"
    assert answer(ready("outbox", "policy", "list", "--json"))["policy"] == "suspend"
    listed = answer(ready("outbox", "calendar", "list", "--json"))
    assert listed["calendar"]["cutOff"] == "15:00"
    assert ready("outbox", "calendar", "remove", "sepa").code == 0
    assert ready("outbox", "limit", "set", "EUR", "--all", "--amount-max", "ten").code == 2
    without = ready("outbox", "limit", "set", "EUR", "--all")
    assert without.code == 2
    assert "limit remove" in without.err
    assert ready("outbox", "limit", "remove", "EUR", "--all").code == 0
    assert ready("outbox", "limit", "remove", "EUR", "--all").code == 2


@pytest.mark.parametrize(
    "content",
    [b"{}", b"{", b"\xff", b"[" * 100_000, b" " * 1_048_577],
    ids=["incomplete", "cut off", "not UTF-8", "nested", "too long"],
)
def test_a_file_that_cannot_be_read_is_refused(
    ready: Cli, tmp_path: Path, *, content: bytes
) -> None:
    """Whatever is in it, and whether it exists: the user gets the field, not a traceback."""
    file = tmp_path / "given.json"
    file.write_bytes(content)
    rail = ("outbox", "rail", "put", "bank", "--adapter", "http_json", "--code-set", "iso20022")

    for path in (file, tmp_path, tmp_path / "nowhere"):
        calendar = ready("outbox", "calendar", "set", "sepa", str(path))
        config = ready(*rail, "--config", str(path))

        assert (calendar.code, config.code) == (2, 2)
        assert calendar.err.startswith("penstock: calendar: ")
        assert config.err.startswith("penstock: config")


def test_a_head_is_held_released_and_skipped(ready: Cli) -> None:
    first = send(ready, "i-1")

    assert ready("outbox", "hold", first, *WHY).code == 0
    assert ready("outbox", "hold", first, *WHY).code == 3
    counted = answer(ready("outbox", "release", "--many", "--dry-run", *WHY, "--json"))
    released = answer(ready("outbox", "release", "--many", "--yes", *WHY, "--json"))
    assert counted == {"matched": 1}
    assert released == {"matched": 1, "changed": 1, "unchanged": 0}

    assert ready("outbox", "skip", first, *WHY).code == 0
    gap = answer(ready("outbox", "gaps", "--participant", "shop", "--json"))
    assert (gap["outbox_id"], gap["reason"]) == (first, "because")
    assert ready("outbox", "release", first, *WHY).code == 3


@pytest.mark.parametrize(
    "arguments",
    [(), ("--many", "--yes", "ID"), ("ID", "--dry-run"), ("ID", "--participant", "shop")],
    ids=["nothing", "both", "dry run of one", "filter of one"],
)
def test_a_decision_is_about_one_or_about_many(ready: Cli, arguments: tuple[str, ...]) -> None:
    first = send(ready, "i-1")
    given = [first if each == "ID" else each for each in arguments]

    assert ready("outbox", "hold", *given, *WHY).code == 2


def test_the_command_line_approves_only_with_a_key(
    ready: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Access to the database is not a second person."""
    ready("outbox", "limit", "set", "EUR", "--all", "--approval-above", "100")
    first = send(ready, "i-1")
    reader = answer(ready("key", "create", "grafana", "--scope", "admin", "--json"))["token"]
    made = answer(ready("key", "create", "ann", "--scope", "approve", "--json"))

    assert ready("outbox", "approve", first, *WHY).code == 2
    assert ready("outbox", "approve", first, *WHY, "--key", "psk_wrong_key").code == 1
    refused = ready("outbox", "approve", first, *WHY, "--key", reader)
    monkeypatch.setenv("PENSTOCK_KEY", made["token"])
    approved = answer(ready("outbox", "approve", first, *WHY, "--json"))

    assert refused.code == 1
    assert "approve" in refused.err
    assert (approved["decision"], approved["key_id"]) == ("approved", made["key_id"])
    assert ready("outbox", "reject", first, *WHY).code == 3
    assert answers(ready("outbox", "approvals", "--json")) == []
