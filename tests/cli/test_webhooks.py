"""The verbs of webhooks on a real database: output, what is stored, and errors."""

import asyncio
import io
import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from penstock import Penstock
from penstock.base.settings import read_once
from penstock.base.vault import make_key
from penstock.domains.webhooks.secret import make_secret
from penstock.postgres.pool import Pool
from tests.cli.conftest import Cli
from tests.cli.output import answer, answers, record, refused
from tests.receiver import Reply, receiving

URL = "https://example.com/hook"
GITHUB_SECRET = "a text of more than 16 characters"


@pytest.fixture
async def ready(cli: Cli, dsn: str) -> Cli:
    """Commands on a database with lanes, which the first start of a process creates."""
    async with Penstock(dsn):
        return cli


@pytest.fixture
def no_database(bare_cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Commands in a folder without a database: one that connects exits with 4."""
    monkeypatch.chdir(tmp_path)
    return bare_cli


def subscribe(cli: Cli, *arguments: str, url: str = URL) -> str:
    """Create a subscription to orders and return its id."""
    made = answer(cli("subscription", "create", url, "order.*", *arguments, "--json"))
    return made["subscription"]["id"]


def set_stdin(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Give a command this text as its standard input."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))


@asynccontextmanager
async def working(dsn: str) -> AsyncGenerator[None]:
    """Run a worker beside the body."""
    stop = asyncio.Event()
    async with Penstock(dsn) as app, asyncio.TaskGroup() as group:
        group.create_task(app.run_worker(stop))
        try:
            yield
        finally:
            stop.set()


# -------------------------------------------------------------------------------- subscriptions


async def test_a_secret_is_shown_once_and_stored_sealed(cli: Cli, db: Pool) -> None:
    """A reader of the database, or of the list, must not be able to sign."""
    made = cli("subscription", "create", URL, "order.*", "invoice.paid")

    shown = record(made)
    assert shown["secret"].startswith("whsec_")
    assert shown["event_types"] == "order.*, invoice.paid"
    assert made.err == "shown this once: give it to the receiver, which verifies with it\n"
    for later in (
        ("show", shown["id"]),
        ("show", shown["id"], "--json"),
        ("list",),
        ("list", "--json"),
    ):
        assert shown["secret"] not in cli("subscription", *later).out
    sealed = await db.fetchval("SELECT sealed FROM penstock.webhook_secret")
    assert shown["secret"].encode() not in sealed


def test_a_new_subscription_has_all_given_options(cli: Cli) -> None:
    made = answer(
        cli(
            *("subscription", "create", URL, "order.paid,order.sent", "--tenant", "shop"),
            *("--filter", '{"amount": {"gte": 1.50}}', "--ordering-key", "order.id"),
            *("--description", "the shop's", "--rate-limit", "2.5", "--concurrency", "7"),
            *("--timeout", "500ms", "--retry-schedule", "5s,1m,1h", "--profile", "github"),
            *("--header", "Authorization: Bearer a:b", "--header", "X-Shop:1"),
            *("--secret", GITHUB_SECRET, "--json"),
        )
    )

    assert made["secret"] == GITHUB_SECRET
    shown = answer(cli("subscription", "show", made["subscription"]["id"], "--json"))
    assert shown == made["subscription"]
    del shown["id"], shown["created_at"], shown["updated_at"]
    assert shown == {
        "tenant": "shop",
        "url": URL,
        "event_types": ["order.paid", "order.sent"],
        "filter": {"amount": {"gte": 1.5}},
        "ordering_key": "order.id",
        "description": "the shop's",
        "state": "active",
        "active": True,
        "state_reason": None,
        "profile": "github",
        "rate_limit": 2.5,
        "concurrency": 7,
        "timeout_seconds": 0.5,
        "retry_schedule_seconds": [5, 60, 3600],
        "header_names": ["Authorization", "X-Shop"],
    }


def test_the_standard_schedule_is_one_word(cli: Cli) -> None:
    made = subscribe(cli, "--retry-schedule", "standard")

    shown = record(cli("subscription", "show", made))

    assert shown["retry_schedule"] == "5s, 5m, 30m, 2h, 5h, 10h, 14h, 20h, 1d"


def test_a_subscription_is_printed_for_people(cli: Cli) -> None:
    made = subscribe(cli, "--timeout", "2s", "--retry-schedule", "5s,1m", "--rate-limit", "none")

    shown = record(cli("subscription", "show", made))

    assert shown["timeout"] == "2s"
    assert shown["retry_schedule"] == "5s, 1m"
    assert shown["rate_limit"] == shown["filter"] == "-"


def test_set_changes_only_the_given_options(cli: Cli) -> None:
    made = subscribe(
        cli, "--filter", '{"a": 1}', "--ordering-key", "a", "--header", "X-A: 1", "--timeout", "3s"
    )
    before = answer(cli("subscription", "show", made, "--json"))

    cli("subscription", "set", made, "--rate-limit", "5", "--type", "order.paid", "--type", "x")
    after = answer(cli("subscription", "show", made, "--json"))
    taken = answer(
        cli(
            *("subscription", "set", made, "--filter", "none", "--ordering-key", "none"),
            *("--header", "none", "--rate-limit", "none", "--retry-schedule", "once", "--json"),
        )
    )

    changed = {"rate_limit": 5, "event_types": ["order.paid", "x"]}
    assert after | {"updated_at": None} == before | changed | {"updated_at": None}
    assert [taken["filter"], taken["ordering_key"], taken["rate_limit"]] == [None, None, None]
    assert taken["header_names"] == taken["retry_schedule_seconds"] == []
    assert taken["timeout_seconds"] == 3


def test_a_filter_can_be_read_from_a_file(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "filter.json").write_text('{"country": {"in": ["DE", "AT"]}}\n')

    made = subscribe(cli, "--filter", f"@{tmp_path}/filter.json")

    shown = answer(cli("subscription", "show", made, "--json"))
    assert shown["filter"] == {"country": {"in": ["DE", "AT"]}}


def test_a_subscription_is_paused_resumed_and_deleted(cli: Cli) -> None:
    made = subscribe(cli)

    paused = cli("subscription", "pause", made)
    resumed = cli("subscription", "resume", made)
    unconfirmed = cli("subscription", "delete", made)
    deleted = cli("subscription", "delete", made, "--yes")

    assert paused.out == f"subscription {made} is paused\n"
    assert resumed.out == f"subscription {made} is active\n"
    assert f"penstock replay start {made} --from " in resumed.err
    assert refused(unconfirmed, 2).startswith("--yes: is required")
    assert deleted.out == f"subscription {made} is deleted\n"
    assert refused(cli("subscription", "show", made), 2).startswith("no subscription has the id")
    assert cli("subscription", "list").err == "there are no subscriptions here\n"


def test_the_replay_that_a_resume_prints_sends_what_came_meanwhile(ready: Cli) -> None:
    """And nothing from before the subscription was paused, or even existed."""
    ready("event", "send", "order.paid", "--id", "before")
    made = subscribe(ready)
    ready("event", "send", "order.paid", "--id", "sent")
    ready("subscription", "pause", made)
    ready("event", "send", "order.paid", "--id", "missed")
    ready("subscription", "pause", made)
    ready("event", "send", "order.paid", "--id", "missed-too")

    resumed = ready("subscription", "resume", made)
    printed = resumed.err.strip().removeprefix("what came meanwhile: penstock ").split()
    counted = ready(*printed, "--dry-run")
    everything = ready("replay", "start", made, "--dry-run")

    assert counted.out == "2 events would be sent\n"
    assert everything.out == "3 events would be sent\n"
    assert ready("subscription", "resume", made).err == "", "nothing came meanwhile"


def test_subscriptions_are_listed_page_by_page(cli: Cli) -> None:
    first, second = subscribe(cli), subscribe(cli)
    other = subscribe(cli, "--tenant", "shop")

    table = cli("subscription", "list").out.splitlines()
    page = answers(cli("subscription", "list", "--limit", "1", "--json"))
    rest = answers(cli("subscription", "list", "--after", first, "--json"))
    shop = answers(cli("subscription", "list", "--tenant", "shop", "--json"))

    assert [line.split()[0] for line in table] == ["id", first, second, other]
    assert [each["id"] for each in page] == [first]
    assert [each["id"] for each in rest] == [second, other]
    assert [each["id"] for each in shop] == [other]


def test_a_rotated_secret_signs_together_with_the_previous_one(cli: Cli) -> None:
    """The receiver needs time to switch."""
    made = subscribe(cli, "--scheme", "ed25519")
    (before,) = answer(cli("subscription", "public-keys", made, "--json"))["keys"]

    rotated = cli("subscription", "rotate-secret", made, "--scheme", "ed25519", "--overlap", "2h")

    assert rotated.out.startswith("whsk_")
    assert f"penstock subscription public-keys {made}" in rotated.err
    assert "the previous secret also signs for 2h" in rotated.err
    newest, second = cli("subscription", "public-keys", made).out.splitlines()
    assert second == before
    assert newest not in {before, rotated.out.strip()}


def test_a_rotation_without_overlap_is_reported(cli: Cli) -> None:
    made = subscribe(cli)
    other = subscribe(cli, "--profile", "github", "--secret", GITHUB_SECRET)

    without_overlap = cli("subscription", "rotate-secret", made, "--overlap", "0")
    github = cli("subscription", "rotate-secret", other)

    assert "the previous secret no longer signs" in without_overlap.err
    assert "one signature: the previous secret no longer signs" in github.err
    message = refused(cli("subscription", "rotate-secret", other, "--scheme", "ed25519"), 2)
    assert message.startswith("--scheme: ")
    assert "there are no public keys" in cli("subscription", "public-keys", made).err


def test_a_secret_can_be_read_from_standard_input(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every account of the machine can read a command's options."""
    given = [make_secret(), make_secret()]

    set_stdin(monkeypatch, f"{given[0]}\n")
    made = answer(cli("subscription", "create", URL, "*", "--secret", "-", "--json"))
    set_stdin(monkeypatch, given[1])
    rotated = cli("subscription", "rotate-secret", made["subscription"]["id"], "--secret", "-")

    assert made["secret"] == given[0]
    assert rotated.out.strip() == given[1]


def test_a_new_key_replaces_the_old_one(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = make_key(), make_key()

    def use(*keys: str) -> None:
        monkeypatch.setenv("PENSTOCK_SECRET_KEY", ",".join(keys))
        read_once.cache_clear()

    def doctor() -> tuple[str, str]:
        found = answers(cli("doctor", "--json"))
        (shown,) = [each for each in found if each["check"] == "secrets"]
        return shown["verdict"], shown["detail"]

    assert doctor() == ("ok", "none")
    use(old)
    made = subscribe(cli, "--header", "X-Team: blue")
    assert doctor() == ("ok", "sealed with the current key")

    use(new)
    failed = cli("subscription", "reseal")
    assert failed.code == 1
    assert made in failed.err
    verdict, detail = doctor()
    assert (verdict, detail.split()[0]) == ("warn", "2")
    assert "is not in PENSTOCK_SECRET_KEY" in detail

    use(new, old)
    verdict, detail = doctor()
    assert (verdict, detail) == (
        "warn", "2 are sealed with an older key; run: penstock subscription reseal",
    )  # fmt: skip
    counted = answer(cli("subscription", "reseal", "--dry-run", "--json"))
    message = cli("subscription", "reseal", "--dry-run").out
    assert counted == {"secrets": 1, "headers": 1}
    assert message == "1 secrets and the headers of 1 subscriptions would be resealed\n"
    done = answer(cli("subscription", "reseal", "--json"))
    assert done == {"secrets": 1, "headers": 1, "unopened": []}

    use(new)
    assert doctor() == ("ok", "sealed with the current key")
    assert cli("subscription", "reseal").out == "everything is sealed with the current key\n"


BAD_SUBSCRIPTIONS = {
    "a private address": (["http://10.0.0.1/", "*"], "URL: may not be reached"),
    "no URL": (["example.com", "*"], "URL: "),
    "a bad type": ([URL, "order..*"], "EVENT_TYPE[0]: must be"),
    "no type": ([URL], "Missing argument 'EVENT_TYPE...'"),
    "nothing but commas": ([URL, ","], "EVENT_TYPE: must be 1 to 100"),
    "a filter that is not JSON": ([URL, "*", "--filter", "{"], "--filter: is not JSON"),
    "a filter with an unknown operator": ([URL, "*", "--filter", '{"a": {"near": 1}}'], "--filter"),
    "a filter file that does not exist": (
        [URL, "*", "--filter", "@/nope"],
        "--filter: cannot read /nope",
    ),
    "no rate": ([URL, "*", "--rate-limit", "fast"], "--rate-limit: 'fast' is not a number"),
    "a rate that is not finite": ([URL, "*", "--rate-limit", "inf"], "--rate-limit: 'inf' is out"),
    "a rate of zero": ([URL, "*", "--rate-limit", "0"], "--rate-limit: must be from 0.001"),
    "a long timeout": ([URL, "*", "--timeout", "2m"], "--timeout: must be from 0.1 to 60"),
    "no duration": ([URL, "*", "--timeout", "soon"], "--timeout: 'soon' is not a duration"),
    "a bad schedule": ([URL, "*", "--retry-schedule", "1s,x"], "--retry-schedule: 'x' is not"),
    "a long schedule": ([URL, "*", "--retry-schedule", "99d"], "--retry-schedule[0]: must be"),
    "a header without value": ([URL, "*", "--header", "pass"], "--header: must look like"),
    "a header twice": ([URL, "*", "--header", "A:1", "--header", "a:2"], "--header a: is given"),
    "a reserved header": ([URL, "*", "--header", "Host: x"], "--header.Host: "),
    "a weak secret": ([URL, "*", "--secret", "whsec_YQ=="], "--secret: has 1 bytes"),
    "a secret without a prefix": ([URL, "*", "--secret", "abc"], "--secret: must begin with"),
    "another profile's scheme": (
        [URL, "*", "--scheme", "ed25519", "--profile", "stripe"],
        "--scheme: ed25519 is unknown to receivers of profile stripe",
    ),
    "no tenant": ([URL, "*", "--tenant", ""], "--tenant: must have"),
    "no text": ([URL, "*", "--description", "\udcff"], "Invalid value for '--description'"),
}


@pytest.mark.parametrize(
    ("arguments", "message"), BAD_SUBSCRIPTIONS.values(), ids=BAD_SUBSCRIPTIONS
)
async def test_a_bad_subscription_is_refused_with_its_option_and_not_stored(
    cli: Cli, db: Pool, *, arguments: list[str], message: str
) -> None:
    assert refused(cli("subscription", "create", *arguments), 2).startswith(message)
    assert await db.fetchval("SELECT count(*) FROM penstock.webhook_subscription") == 0


def test_a_bad_change_is_refused_with_its_option(cli: Cli) -> None:
    made = subscribe(cli)

    assert refused(cli("subscription", "set", made), 2) == "changes: give at least one option"
    assert refused(cli("subscription", "set", made, "--url", "x"), 2).startswith("--url: ")
    assert refused(cli("subscription", "set", made, "--type", "a."), 2).startswith("--type[0]: ")
    assert refused(cli("subscription", "set", "nobody", "--url", URL), 2).startswith("no subscr")
    rotate = ("subscription", "rotate-secret", made)
    assert refused(cli(*rotate, "--overlap", "99d"), 2).startswith("--overlap: ")


def test_without_a_key_no_secret_is_stored(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PENSTOCK_SECRET_KEY")
    read_once.cache_clear()

    message = refused(cli("subscription", "create", URL, "*"), 2)

    assert message.startswith("PENSTOCK_SECRET_KEY: is not set")


def test_a_test_event_goes_to_one_subscription_only(ready: Cli) -> None:
    made = subscribe(ready, "--tenant", "shop")
    subscribe(ready, "--tenant", "shop")

    sent = ready("subscription", "test", made)

    printed = record(sent)
    assert printed["deliveries"] == "1"
    assert f"penstock event show {printed['id']} --tenant shop" in sent.err
    shown = answer(ready("event", "show", printed["id"], "--tenant", "shop", "--json"))
    assert shown["type"] == "penstock.test"
    assert [each["subscription_id"] for each in shown["deliveries"]] == [made]
    assert refused(ready("subscription", "test", "nobody"), 2).startswith("no subscription")


# --------------------------------------------------------------------------------------- events


def test_an_event_is_accepted_once_and_stored_byte_for_byte(ready: Cli) -> None:
    made = subscribe(ready)
    data = '{"amount": 1.0, "id": 123456789012345678901234567890}'

    first = answer(ready("event", "send", "order.paid", data, "--id", "e1", "--json"))
    again = answer(ready("event", "send", "order.paid", data, "--id", "e1", "--json"))
    other = ready("event", "send", "order.paid", "{}", "--id", "e1")

    assert (first["is_new"], first["deliveries"]) == (True, 1)
    assert again == first | {"is_new": False}
    assert refused(other, 3).startswith("event 'e1'")
    shown = ready("event", "show", "e1")
    assert f"data             {data}\n" in shown.out
    assert made in shown.out
    assert record(shown)["status"] == "pending"


def test_an_event_without_subscriptions_is_delivered(ready: Cli) -> None:
    sent = record(ready("event", "send", "order.paid"))

    shown = answer(ready("event", "show", sent["id"], "--json"))
    assert sent["deliveries"] == "0"
    assert (shown["status"], shown["data"], shown["deliveries"]) == ("delivered", {}, [])


def test_data_can_be_read_from_a_file_or_standard_input(
    ready: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "order.json").write_text('{"n": 1}\n')
    set_stdin(monkeypatch, '{"n": 2}')

    ready("event", "send", "order.paid", f"@{tmp_path}/order.json", "--id", "e1")
    ready("event", "send", "order.paid", "-", "--id", "e2")

    shown = [answer(ready("event", "show", each, "--json"))["data"] for each in ("e1", "e2")]
    assert shown == [{"n": 1}, {"n": 2}]


def test_an_idempotency_key_identifies_its_event(ready: Cli) -> None:
    first = answer(ready("event", "send", "order.paid", "--key", "k", "--json"))
    again = answer(ready("event", "send", "order.paid", "--key", "k", "--json"))

    assert again == first | {"is_new": False}


BAD_EVENTS = {
    "a bad type": (["order..paid"], "TYPE: must be"),
    "no JSON": (["order.paid", "{"], "JSON: is not JSON"),
    "two values": (["order.paid", "{} {}"], "JSON: is not JSON"),
    "half a character": (["order.paid", '"\\ud800"'], "JSON: "),
    "a file that does not exist": (["order.paid", "@/nope"], "JSON: cannot read /nope"),
    "too much": (["order.paid", f'"{"x" * 300_000}"'], "JSON: is over 262144 bytes"),
    "a bad id": (["order.paid", "--id", "a.b"], "--id: must have"),
    "no source": (["order.paid", "--source", ""], "--source: must have"),
    "no tenant": (["order.paid", "--tenant", ""], "--tenant: must have"),
    "no key": (["order.paid", "--key", ""], "--key: must have"),
    "no text": (["order.paid", "\udcff"], "Invalid value for '[JSON|-|@FILE]'"),
}


@pytest.mark.parametrize(("arguments", "message"), BAD_EVENTS.values(), ids=BAD_EVENTS)
def test_a_bad_event_is_refused_with_its_option_before_connecting(
    no_database: Cli, *, arguments: list[str], message: str
) -> None:
    assert refused(no_database("event", "send", *arguments), 2).startswith(message)


def test_without_lanes_an_event_is_refused_with_a_hint(cli: Cli) -> None:
    subscribe(cli)

    message = refused(cli("event", "send", "order.paid"), 2)

    assert "no lane is named 'penstock.webhooks'" in message
    assert "`penstock up`" in message


def test_events_are_listed_page_by_page(ready: Cli) -> None:
    for number in range(4):
        kind = "order.paid" if number % 2 else "order.sent"
        ready("event", "send", kind, "--id", f"e{number}")

    table = ready("event", "list").out.splitlines()
    rest = answers(ready("event", "list", "--after", "e2", "--json"))
    paid = answers(ready("event", "list", "--type", "order.paid", "--limit", "1", "--json"))
    recent = answers(ready("event", "list", "--from", "-1h", "--until", "+1h", "--json"))

    assert [line.split()[0] for line in table] == ["id", "e3", "e2", "e1", "e0"]
    assert [each["id"] for each in rest] == ["e1", "e0"]
    assert [each["id"] for each in paid] == ["e3"]
    assert len(recent) == 4
    assert ready("event", "list", "--until", "-1h").err == "there are no events here\n"
    assert ready("event", "list", "--tenant", "shop").err == "there are no events here\n"


@pytest.mark.parametrize(
    "instant", ["soon", "-soon", "0001-01-01T00:00:00+14:00", "-99999999d", "2030-01-01T00:00:00"]
)
def test_a_bad_instant_is_refused_with_its_option(no_database: Cli, instant: str) -> None:
    assert refused(no_database("event", "list", "--from", instant), 2).startswith("--from: ")


def test_an_unknown_event_is_bad_input(cli: Cli) -> None:
    for words in (("show", "x"), ("attempts", "x"), ("list", "--after", "x")):
        assert refused(cli("event", *words), 2) == "no event has the id 'x'"


async def test_attempts_show_what_the_receiver_answered(ready: Cli, dsn: str) -> None:
    """A response is untrusted text: it must not control the terminal."""
    nasty = Reply(503, b"\x1b[2J no\n" + b"!" * 100)
    async with receiving(answers=[nasty, 200]) as receiver:
        subscribe(ready, "--retry-schedule", "0", url=receiver.url)
        ready("event", "send", "order.paid", "--id", "e1")
        assert ready("event", "attempts", "e1").err == "nothing has been tried yet\n"

        async with working(dsn):
            await receiver.wait_for(2)

    table = ready("event", "attempts", "e1").out
    assert "\x1b" not in table
    assert "[2J no !!!" in table
    assert "!..." in table
    tried = answers(ready("event", "attempts", "e1", "--json"))
    assert [(each["status_code"], each["outcome"]) for each in tried] == [
        (503, "retry"),
        (200, "done"),
    ]
    assert tried[0]["response_body"] == nasty.body.decode()


# -------------------------------------------------------------------------------------- replays


def test_a_replay_is_counted_started_paused_resumed_and_cancelled(ready: Cli) -> None:
    for number in range(3):
        ready("event", "send", "order.paid", "--id", f"e{number}")
    made = subscribe(ready)

    dry = ready("replay", "start", made, "--dry-run")
    dry_json = answer(ready("replay", "start", made, "--dry-run", "--json"))
    others = ready("replay", "start", made, "--dry-run", "--type", "invoice.*")
    older = ready("replay", "start", made, "--dry-run", "--until", "-1h")
    started = answer(ready("replay", "start", made, "--rate", "0.5", "--yes", "--json"))
    job = started["id"]

    assert dry.out == "3 events would be sent\n"
    assert (dry_json["state"], dry_json["counted"]) == ("dry_run", 3)
    assert others.out == older.out == "0 events would be sent\n"
    assert (started["state"], started["counted"], started["rate"]) == ("running", 3, 0.5)
    assert record(ready("replay", "pause", job))["state"] == "paused"
    assert record(ready("replay", "resume", job))["state"] == "running"
    assert record(ready("replay", "cancel", job))["state"] == "cancelled"
    assert refused(ready("replay", "resume", job), 3)
    assert record(ready("replay", "show", job))["created_by"].startswith("cli:")
    assert ready("replay", "show", job, "--wait").code == 1


def test_a_replay_is_confirmed_with_the_number_of_its_events(ready: Cli) -> None:
    """A slip in --which or --from would send a subscriber everything that there ever was."""
    ready("event", "send", "order.paid")
    made = subscribe(ready)

    unconfirmed = ready("replay", "start", made)
    nothing = ready("replay", "start", made, "--until", "-1h")

    message = f"--yes: is required without a terminal: Send 1 events to subscription {made}?"
    assert refused(unconfirmed, 2) == message
    assert nothing.out == "there is nothing to replay\n"
    assert ready("replay", "list").err == "there are no replays here\n"


def test_replays_are_listed_page_by_page(ready: Cli) -> None:
    assert ready("replay", "list").err == "there are no replays here\n"
    made = subscribe(ready)
    first, second = (
        answer(ready("replay", "start", made, "--yes", "--json"))["id"] for _ in range(2)
    )

    table = ready("replay", "list").out.splitlines()
    rest = answers(ready("replay", "list", "--after", second, "--json"))

    assert [line.split()[0] for line in table] == ["id", second, first]
    assert [each["id"] for each in rest] == [first]


async def test_start_wait_returns_when_the_replay_is_finished(ready: Cli, dsn: str) -> None:
    for number in range(3):
        ready("event", "send", "order.paid", "--id", f"e{number}")
    async with receiving() as receiver, working(dsn):
        made = subscribe(ready, url=receiver.url)

        ended = await asyncio.to_thread(ready, "replay", "start", made, "--yes", "--wait")
        await receiver.wait_for(3)

    assert ended.code == 0, ended.err
    assert ended.out.endswith(" is finished: 3 events are on their way\n")
    assert sorted(json.loads(each.body)["id"] for each in receiver.requests) == ["e0", "e1", "e2"]


BAD_REPLAYS = {
    "an instant": (["--from", "soon"], "--from: "),
    "a rate": (["--rate", "fast"], "--rate: 'fast' is not a number"),
    "a rate of zero": (["--rate", "0"], "--rate: must be from 0.001"),
    "a rate that is not finite": (["--rate", "nan"], "--rate: 'nan' is out of range"),
}


@pytest.mark.parametrize(("arguments", "message"), BAD_REPLAYS.values(), ids=BAD_REPLAYS)
def test_a_bad_replay_is_refused_with_its_option(
    no_database: Cli, *, arguments: list[str], message: str
) -> None:
    assert refused(no_database("replay", "start", "sub_1", *arguments), 2).startswith(message)


def test_an_unknown_replay_or_subscription_is_bad_input(ready: Cli) -> None:
    made = subscribe(ready)

    for verb in ("show", "pause", "resume", "cancel"):
        assert refused(ready("replay", verb, "7"), 2) == "no replay has the id 7"
    assert refused(ready("replay", "start", "nobody"), 2).startswith("no subscription")
    assert refused(ready("replay", "start", made, "--type", "a."), 2).startswith("--type[0]: ")
    assert ready("replay", "list").err == "there are no replays here\n"
