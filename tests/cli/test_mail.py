"""The verbs of mail on a real database: output, what is stored, and errors."""

from pathlib import Path

import pytest

from penstock import Penstock
from penstock.domains.mail.enqueue import send_prepared
from penstock.domains.mail.inspect import LOOKED_AT_MAX
from penstock.domains.mail.new_mail import NewMail, prepare
from penstock.postgres.pool import Pool
from tests.cli.conftest import Cli
from tests.cli.output import answer, answers

MAIL = ("--from", "shop@example.com", "--to", "ada@example.org", "--subject", "Hi")


@pytest.fixture
async def ready(cli: Cli, dsn: str) -> Cli:
    """Commands on a database with lanes, which the first start of a process creates."""
    async with Penstock(dsn):
        return cli


def test_a_mail_is_accepted_shown_listed_and_previewed(ready: Cli, tmp_path: Path) -> None:
    file = tmp_path / "order.pdf"
    file.write_bytes(b"%PDF-1.7")

    sent = answer(
        ready(
            "mail", "send", *MAIL, "--text", "Hello.", "--tag", "order",
            "--attach", str(file), "--json",
        )
    )  # fmt: skip
    mail_id = str(sent["id"])

    shown = answer(ready("mail", "show", mail_id, "--json"))
    assert shown["mail"]["status"] == "queued"
    assert [each["address"] for each in shown["recipients"]] == ["ada@example.org"]
    assert [each["id"] for each in answers(ready("mail", "list", "--tag", "order", "--json"))] == [
        sent["id"]
    ]
    preview = ready("mail", "preview", mail_id).out
    assert "Subject: Hi" in preview
    assert 'filename="order.pdf"' in preview


def test_bad_input_is_refused_with_the_field(ready: Cli) -> None:
    refused = ready("mail", "send", "--from", "nobody", "--to", "ada@example.org",
                    "--subject", "Hi", "--text", "x")  # fmt: skip

    assert refused.code == 2
    assert "from: is not a valid address" in refused.err
    assert ready("mail", "show", "1").code == 2


def test_a_queued_mail_is_cancelled(ready: Cli) -> None:
    mail_id = str(answer(ready("mail", "send", *MAIL, "--text", "x", "--json"))["id"])

    assert ready("mail", "cancel", mail_id).code == 0
    assert answer(ready("mail", "show", mail_id, "--json"))["mail"]["status"] == "cancelled"
    assert ready("mail", "replay", mail_id).code == 3


async def test_a_status_finds_mails_behind_thousands_of_others(ready: Cli, db: Pool) -> None:
    """An operator who looks for failed mails must not read that there are none."""
    ids = [answer(ready("mail", "send", *MAIL, "--text", "x", "--json"))["id"] for _ in range(3)]
    for mail_id in ids:
        ready("mail", "cancel", str(mail_id))
    other = prepare(
        NewMail(sender="shop@example.com", to=["eve@example.org"], subject="Hi", text="x")
    )
    async with db.acquire() as connection:
        await send_prepared(connection, [other] * (2 * LOOKED_AT_MAX + 1))

    all_ = ready("mail", "list", "--status", "cancelled", "--limit", "3", "--json")
    some = ready("mail", "list", "--status", "cancelled", "--limit", "2", "--json")
    unfiltered = ready("mail", "list", "--limit", "2")

    assert [each["id"] for each in answers(all_)] == ids[::-1]
    assert [each["id"] for each in answers(some)] == ids[:0:-1]
    assert "there are more" not in all_.err
    assert "there are more mails: raise --limit" in some.err
    assert "there are more mails: raise --limit" in unfiltered.err


def test_relays_limits_templates_and_suppressions_are_set_and_listed(
    ready: Cli, tmp_path: Path
) -> None:
    text = tmp_path / "text"
    text.write_text("Hi {{ name }}")

    assert ready("mail", "relay", "set", "main", "smtp.example.com").code == 0
    assert ready("mail", "limit", "set", "relay", "main", "--per-second", "5").code == 0
    assert ready("mail", "template", "add", "hi", "--subject", "Hi", "--text", str(text)).code == 0
    assert ready("mail", "suppress", "add", "eve@example.org", "--expires", "+30d").code == 0

    assert answer(ready("mail", "relay", "list", "--json"))["host"] == "smtp.example.com"
    assert answer(ready("mail", "limit", "list", "--json"))["per_second"] == 5
    assert answer(ready("mail", "template", "list", "--json"))["version"] == 1
    assert answer(ready("mail", "suppress", "list", "--json"))["reason"] == "manual"
    sent = ready("mail", "send", "--from", "shop@example.com", "--to", "ada@example.org",
                 "--template", "hi", "--variables", '{"name": "Ada"}', "--json")  # fmt: skip
    assert "Hi Ada" in ready("mail", "preview", str(answer(sent)["id"])).out
    assert ready("mail", "suppress", "remove", "eve@example.org").code == 0
    assert ready("mail", "relay", "remove", "main").code == 0
