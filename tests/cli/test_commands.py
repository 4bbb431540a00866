"""The verbs on a real database: output, changes and errors."""

import json
import os
import sys
from collections.abc import Callable, Generator
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from penstock.kernel.claim import Cursor, Lease, claim
from penstock.kernel.enqueue import enqueue as kernel_enqueue
from penstock.kernel.heartbeat import report_worker
from penstock.kernel.inspect import list_audit, list_dead, read_item
from penstock.kernel.item import Dead, ItemId, NewItem
from penstock.kernel.lane import create_lane, read_lane
from penstock.kernel.settle import Ended as Attempted
from penstock.kernel.settle import settle
from penstock.postgres.pool import Pool
from tests.cli.conftest import Cli
from tests.cli.output import record
from tests.database import run_sql

LANE = "orders"


@pytest.fixture
def lane(cli: Cli) -> str:
    assert cli("lane", "set", LANE, "--create").code == 0
    return LANE


def enqueue(cli: Cli, *arguments: str) -> ItemId:
    ended = cli("item", "enqueue", LANE, *arguments, "--json")
    assert ended.code == 0, ended.err
    return ItemId(json.loads(ended.out)["id"])


async def kill(db: Pool, reason: str) -> None:
    """Make every due item of the lane dead."""
    lane = await read_lane(db, LANE)
    async with db.acquire() as connection:
        lease = await claim(connection, lane.lane_id, Cursor(), limit=500, worker="test")
        assert isinstance(lease, Lease)
        ended = [Attempted(item, Dead(reason), 0) for item in lease.items]
        async with connection.transaction():
            assert await settle(connection, lane, lease, ended=ended, closes=True)


# ---------------------------------------------------------------------------------------- lanes


@pytest.mark.usefixtures("lane")
async def test_a_changed_policy_is_stored_and_audited(cli: Cli, db: Pool) -> None:
    ended = cli("lane", "set", LANE, "rate=1000", "lease=2m", "--json")

    assert json.loads(ended.out)["lease"] == "PT120S"
    stored = await read_lane(db, LANE)
    assert stored.rate == 1000
    latest, *_ = await list_audit(db, subject=LANE)
    assert latest.who.startswith("cli:")


@pytest.mark.usefixtures("lane")
async def test_one_bad_value_changes_nothing(cli: Cli, db: Pool) -> None:
    ended = cli("lane", "set", LANE, "batch_size=7", "rate=-1")

    assert ended.code == 2
    assert ended.err.startswith("penstock: rate: must be")
    assert ended.err.count("\n") == 1
    assert (await read_lane(db, LANE)).batch_size == 500


OWNED = {"enqueue": "use rails pay", "cancel": "use rails recall", "set:lease": "it is a day"}


@pytest.fixture
async def owned(db: Pool) -> ItemId:
    """An item of a lane that belongs to a domain."""
    async with db.acquire() as connection:
        await create_lane(connection, LANE, who="test", owner="rails", guards=OWNED)
        return (await kernel_enqueue(connection, LANE, NewItem(payload=1), owner="rails")).id


@pytest.mark.parametrize(
    ("arguments", "refusal"),
    [
        (("item", "enqueue", LANE, "1"), "enqueue: use rails pay"),
        (("item", "cancel", "ID"), "cancel: use rails recall"),
        (("lane", "set", LANE, "lease=2m"), "a change of lease: it is a day"),
    ],
)
def test_what_a_domain_guards_is_refused_with_its_verb(
    cli: Cli, owned: ItemId, *, arguments: tuple[str, ...], refusal: str
) -> None:
    ended = cli(*(str(owned) if each == "ID" else each for each in arguments))

    assert ended.code == 3
    assert ended.err == (
        f"penstock: lane '{LANE}' belongs to the domain 'rails', which refuses {refusal}\n"
    )


@pytest.mark.usefixtures("owned")
def test_a_lane_is_shown_with_its_owner_and_guards(cli: Cli) -> None:
    shown = json.loads(cli("lane", "show", LANE, "--json").out)
    lines = dict(line.split(maxsplit=1) for line in cli("lane", "show", LANE).out.splitlines())

    assert (shown["owner"], shown["guards"]) == ("rails", OWNED)
    assert lines["owner"] == "rails"
    assert lines["guards"].startswith("cancel: use rails recall; enqueue: use rails pay")


def test_a_lane_with_a_reserved_name_is_not_created(cli: Cli) -> None:
    ended = cli("lane", "set", "penstock.mine", "--create")

    assert ended.code == 2
    assert "name: must not begin with 'penstock.'" in ended.err


async def test_a_refused_policy_creates_no_lane(cli: Cli) -> None:
    """`--create` and the changes are one transaction."""
    assert cli("lane", "set", "half", "rate=-1", "--create").code == 2

    assert cli("lane", "show", "half").code == 2


@pytest.mark.usefixtures("lane")
@pytest.mark.covers("A74")
async def test_a_paused_lane_keeps_its_items_and_resumes(cli: Cli, db: Pool) -> None:
    """The kill switch must lose nothing."""
    waiting = enqueue(cli, "{}")
    lane = await read_lane(db, LANE)

    assert cli("lane", "pause", LANE).out == f"lane {LANE} is paused\n"
    async with db.acquire() as connection:
        paused = await claim(connection, lane.lane_id, Cursor(), limit=1, worker="test")
        assert cli("lane", "resume", LANE).code == 0
        resumed = await claim(connection, lane.lane_id, Cursor(), limit=1, worker="test")

    assert not isinstance(paused, Lease)
    assert isinstance(resumed, Lease)
    assert [item.id for item in resumed.items] == [waiting]


@pytest.mark.usefixtures("lane")
def test_lane_diff_shows_what_the_code_declares_otherwise(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A decorator changes no lane that exists."""
    (tmp_path / "declared_shop.py").write_text(
        "from penstock import Penstock\n"
        "app = Penstock()\n"
        f"@app.handler({LANE!r}, rate=7)\n"
        "async def ship(item): ...\n"
    )
    monkeypatch.syspath_prepend(tmp_path)

    before = cli("lane", "diff", "--app", "declared_shop:app", "--json")
    cli("lane", "set", LANE, "rate=7")
    after = cli("lane", "diff", "--app", "declared_shop:app")

    assert json.loads(before.out) == {"lane": LANE, "field": "rate", "declared": 7, "stored": None}
    assert (after.code, after.out) == (0, "")


def test_lane_diff_names_the_lanes_that_do_not_exist(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It said that every lane had the policy of its handler."""
    (tmp_path / "absent_shop.py").write_text(
        "from penstock import Penstock\n"
        "app = Penstock()\n"
        "@app.handler('absent', rate=7)\n"
        "async def ship(item): ...\n"
    )
    monkeypatch.syspath_prepend(tmp_path)

    ended = cli("lane", "diff", "--app", "absent_shop:app")

    assert (ended.code, ended.out) == (0, "")
    assert "lane absent does not exist" in ended.err
    assert "every lane has" not in ended.err


@pytest.mark.usefixtures("lane")
def test_lanes_are_listed_for_people_and_for_programs(cli: Cli) -> None:
    _, first, second = cli("lane", "list").out.splitlines()
    assert [line.split()[0] for line in (first, second)] == sorted([LANE, "payment"])
    shown = [json.loads(line) for line in cli("lane", "list", "--json").out.splitlines()]
    assert {each["name"]: each["ready"] for each in shown} == {LANE: 0, "payment": 0}


# ---------------------------------------------------------------------------------------- items


@pytest.mark.usefixtures("lane")
def test_an_item_is_shown_by_id_and_by_key(cli: Cli) -> None:
    item_id = enqueue(cli, '{"amount": "12.50"}', "--key", "a", "--due-at", "2199-01-01T00:00:00Z")

    by_id = json.loads(cli("item", "show", str(item_id), "--json").out)
    by_key = json.loads(cli("item", "show", "--lane", LANE, "--key", "a", "--json").out)

    assert by_id == by_key
    assert by_id["payload"] == {"amount": "12.50"}
    assert by_id["state"] == "scheduled"
    assert by_id["history"] == []


@pytest.mark.usefixtures("lane")
def test_an_item_that_is_not_there_is_named_as_it_was_asked_for(cli: Cli) -> None:
    by_id = cli("item", "show", "7")
    by_key = cli("item", "show", "--lane", LANE, "--key", "nope")

    assert (by_id.code, by_key.code) == (2, 2)
    assert "no item has the id 7" in by_id.err
    assert "no item of the lane has the key nope" in by_key.err


@pytest.mark.usefixtures("lane")
async def test_an_item_is_rescheduled_and_cancelled(cli: Cli, db: Pool) -> None:
    item_id = enqueue(cli, "1")

    assert cli("item", "reschedule", str(item_id), "2199-01-01T00:00:00Z").code == 0
    moved = await read_item(db, item_id)
    assert cli("item", "cancel", str(item_id)).code == 0
    ended = await read_item(db, item_id)

    assert moved is not None
    assert moved.due_at == datetime(2199, 1, 1, tzinfo=UTC)
    assert ended is not None
    assert ended.state == "cancelled"


@pytest.mark.usefixtures("lane")
def test_an_action_that_the_state_forbids_is_a_conflict(cli: Cli) -> None:
    item_id = enqueue(cli, "1")

    ended = cli("item", "retry", str(item_id))

    assert ended.code == 3
    assert ended.err.count("\n") == 1


@pytest.mark.usefixtures("lane")
def test_a_key_with_another_payload_is_a_conflict_with_both_hashes(cli: Cli) -> None:
    enqueue(cli, "1", "--key", "a")

    ended = cli("item", "enqueue", LANE, "2", "--key", "a")

    assert ended.code == 3
    assert "stored" in ended.err
    assert "given" in ended.err


BAD_ITEMS = {
    "not JSON": ["{"],
    "NaN": ["NaN"],
    "a NUL": ['"\\u0000"'],
    "too deep": ["[" * 100 + "]" * 100],
    "far too deep": ["[" * 100_000],
    "too large": ['"' + "x" * 300_000 + '"'],
    "a year out of range": ["1", "--due-at", "9999-01-01T00:00:00Z"],
    "no time zone": ["1", "--due-at", "2030-01-01T00:00:00"],
    "a key too long": ["1", "--key", "k" * 256],
    "an empty key": ["1", "--key", ""],
    "a deadline before it is due": [
        *("1", "--due-at", "2031-01-01T00:00:00Z", "--not-after", "2030-01-01T00:00:00Z")
    ],
}


@pytest.mark.usefixtures("lane")
@pytest.mark.parametrize("arguments", BAD_ITEMS.values(), ids=BAD_ITEMS)
async def test_a_bad_item_is_reported_in_one_line_and_not_written(
    cli: Cli, db: Pool, arguments: list[str]
) -> None:
    ended = cli("item", "enqueue", LANE, *arguments)

    assert ended.code == 2
    assert ended.err.startswith("penstock: ")
    assert ended.err.count("\n") == 1
    assert await db.fetchval("SELECT count(*) FROM penstock.item") == 0


def test_an_unknown_lane_is_bad_input(cli: Cli) -> None:
    ended = cli("item", "enqueue", "nowhere", "1")

    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("penstock: no lane is named 'nowhere'")


@pytest.mark.usefixtures("lane")
def test_an_item_is_enqueued_and_shown_with_its_limit_keys(cli: Cli) -> None:
    item_id = enqueue(cli, "1", "--limit-key", "tenant=42", "--limit-key", "provider=a=b")

    shown = json.loads(cli("item", "show", str(item_id), "--json").out)

    assert shown["limit_keys"] == {"tenant": "42", "provider": "a=b"}


@pytest.mark.usefixtures("lane")
def test_a_lane_shows_the_key_limits_that_were_set(cli: Cli) -> None:
    ended = cli("lane", "set", LANE, 'key_limits={"tenant": {"rate": 20, "concurrency": 5}}')

    assert record(ended)["key_limits"] == '{"tenant":{"rate":20.0,"concurrency":5}}'


@pytest.mark.usefixtures("lane")
async def test_a_file_of_items_is_enqueued_completely(cli: Cli, db: Pool, tmp_path: Path) -> None:
    file = tmp_path / "items.ndjson"
    file.write_text('{"payload": 1, "key": "a"}\n\n{"payload": 2}\n{"payload": 1, "key": "a"}\n')

    ended = cli("item", "enqueue", LANE, "--file", str(file))

    assert ended.out == "accepted 2 items, 1 were known already\n"
    assert await db.fetchval("SELECT count(*) FROM penstock.item") == 2


@pytest.mark.usefixtures("lane")
@pytest.mark.parametrize(
    "line",
    [
        '{"payload": 1, "colour": "red"}',
        '{"key": "a"}',
        '{"payload": 1, "key": 5}',
        '{"payload": 1, "due_at": "soon"}',
        '{"payload": 1, "due_at": "9999-01-01T00:00:00Z"}',
        "[]",
        "{",
        "\xff",
    ],
)
async def test_one_bad_line_refuses_the_file_and_is_reported(
    cli: Cli, db: Pool, *, tmp_path: Path, line: str
) -> None:
    file = tmp_path / "items.ndjson"
    file.write_bytes(b'{"payload": 1}\n' + line.encode("latin-1") + b"\n")

    ended = cli("item", "enqueue", LANE, "--file", str(file))

    assert ended.code == 2
    assert ended.err.startswith("penstock: line 2")
    assert ended.err.count("\n") == 1
    assert await db.fetchval("SELECT count(*) FROM penstock.item") == 0


# ---------------------------------------------------------------------------------- dead letters


@pytest.mark.usefixtures("lane")
async def test_dead_items_are_listed_and_replayed_by_reason(cli: Cli, db: Pool) -> None:
    first = enqueue(cli, "1")
    await kill(db, "broken")
    second = enqueue(cli, "2")
    await kill(db, "closed")

    listed = [json.loads(line) for line in cli("dead", "list", "--json").out.splitlines()]
    ended = cli("dead", "replay", LANE, "--reason", "broken", "--yes")

    assert [(each["id"], each["reason"]) for each in listed] == [
        (first, "broken"),
        (second, "closed"),
    ]
    assert ended.out == "replayed 1 items\n"
    assert [each.id for each in await list_dead(db)] == [second]


@pytest.mark.usefixtures("lane")
async def test_a_replay_without_a_terminal_needs_yes(cli: Cli, db: Pool) -> None:
    """A script must give --yes."""
    enqueue(cli, "1")
    await kill(db, "broken")

    ended = cli("dead", "replay", LANE)

    assert ended.code == 2
    assert "Replay 1 dead items" in ended.err
    assert len(await list_dead(db)) == 1


# ----------------------------------------------------------------------- keys, doctor, migrations


def test_a_token_is_printed_when_it_is_created_and_never_again(cli: Cli) -> None:
    made = json.loads(cli("key", "create", "ci", "--scope", "produce", "--json").out)

    (listed,) = cli("key", "list", "--json").out.splitlines()

    assert made["token"] not in listed
    assert json.loads(listed)["scopes"] == ["produce"]
    assert cli("key", "revoke", made["key_id"]).code == 0
    assert json.loads(cli("key", "list", "--json").out)["revoked_at"] is not None


def test_a_key_needs_a_known_scope(cli: Cli) -> None:
    assert cli("key", "create", "ci", "--scope", "everything").code == 2
    assert cli("key", "create", "ci").code == 2
    assert cli("key", "revoke", "nobody").code == 2


@pytest.mark.usefixtures("lane")
async def test_doctor_warns_about_dead_letters_and_paused_lanes(cli: Cli, db: Pool) -> None:
    enqueue(cli, "1")
    await kill(db, "broken")
    cli("lane", "pause", LANE)

    ended = cli("doctor", "--json")

    assert ended.code == 0
    findings = {each["check"]: each for each in map(json.loads, ended.out.splitlines())}
    assert findings["schema"]["verdict"] == "ok"
    assert findings["paused lanes"]["verdict"] == "warn"
    assert findings["dead letters"]["detail"].startswith(f"1 in {LANE}")


def test_an_empty_database_is_reported_and_migrated(
    cli: Cli, empty_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_DATABASE_URL", empty_dsn)

    before = cli("lane", "list")
    check = cli("migrate", "--check")
    doctor = cli("doctor")
    applied = cli("migrate")
    again = cli("migrate", "--check")

    assert (before.code, before.err.count("\n")) == (1, 1)
    assert "penstock migrate" in before.err
    assert (check.code, doctor.code) == (1, 1)
    assert "applied penstock.kernel/0001_kernel" in applied.out
    assert (again.code, again.out) == (0, "the schema is up to date\n")


async def test_migrate_extends_the_search_path_on_request(cli: Cli, dsn: str) -> None:
    await run_sql(dsn, f"ALTER DATABASE {urlsplit(dsn).path[1:]} SET search_path = public")

    first = cli("migrate", "--search-path")
    second = cli("migrate", "--search-path")
    refused = cli("migrate", "--search-path", "--check")

    assert first.out == "applied search_path\n"
    assert second.out == "the schema is up to date\n"
    assert refused.code == 2


def test_without_a_database_the_error_names_penstock_up(bare_cli: Cli, tmp_path: Path) -> None:
    ended = bare_cli("lane", "list", "--data-dir", str(tmp_path))

    assert ended.code == 4
    assert "penstock up" in ended.err
    assert ended.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


# ------------------------------------------------------------------------------- the command itself


@pytest.mark.parametrize(
    "arguments",
    [
        ["frobnicate"],
        ["lane", "frobnicate"],
        ["lane", "set"],
        ["item", "show", "abc"],
        ["item", "show", "1", "--lane", "a", "--key", "b"],
        ["item", "enqueue", "a"],
        ["item", "enqueue", "a", "1", "--file", "/nowhere"],
        ["up", "--port", "70000"],
        ["up", "--host", ""],
        ["up", "--app", "nowhere"],
        ["up", "--app", "nowhere:app"],
        ["worker", "--app", "json:loads"],
        ["worker", "--app", "json:nothing"],
        ["demo", "--payments", "0"],
    ],
    ids=" ".join,
)
def test_wrong_usage_is_reported_in_one_line_with_code_2(
    bare_cli: Cli, arguments: list[str]
) -> None:
    ended = bare_cli(*arguments)

    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("penstock: ")
    assert ended.err.count("\n") == 1


def test_a_bad_setting_is_reported_by_name(bare_cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_PORT", "high")

    ended = bare_cli("lane", "list")

    assert ended.code == 2
    assert ended.err.startswith("penstock: PENSTOCK_PORT: ")


def test_help_and_version_are_not_errors(bare_cli: Cli) -> None:
    assert bare_cli("--version").out.startswith("penstock ")
    assert "Exit codes" in bare_cli("--help").out
    assert bare_cli("item", "enqueue", "--help").code == 0


def test_the_demo_names_the_extra_that_is_missing(
    bare_cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It fails before the run, not after it."""
    monkeypatch.setitem(sys.modules, "plotext", None)

    ended = bare_cli("demo")

    assert ended.code == 4
    assert ended.err == "penstock: the demo needs: pip install 'penstock[demo]'\n"


@pytest.mark.usefixtures("lane")
async def test_an_item_is_held_released_and_resolved(cli: Cli, db: Pool) -> None:
    item_id = enqueue(cli, "1")
    why = ("--reason", "asked the bank")

    assert cli("item", "hold", str(item_id), *why).code == 0
    assert cli("item", "release", str(item_id), *why).code == 0
    assert cli("item", "hold", str(item_id), *why).code == 0
    resolved = cli(
        "item", "resolve", str(item_id), "--as", "done", "--result", '{"ref": 7}', *why, "--json"
    )

    assert resolved.code == 0
    found = await read_item(db, item_id)
    assert found is not None
    assert found.state == "done"


@pytest.mark.usefixtures("lane")
def test_many_items_are_counted_before_they_are_held(cli: Cli) -> None:
    """Without a terminal nobody can be asked, so the command changes nothing without --yes."""
    for number in range(3):
        enqueue(cli, str(number))
    command = ("item", "hold", "--lane", LANE, "--reason", "a doubt", "--json")

    counted = cli(*command, "--dry-run")
    refused = cli(*command)
    held = cli(*command, "--yes")

    assert json.loads(counted.out) == {"matched": 3}
    assert refused.code == 2
    assert json.loads(held.out) == {"matched": 3, "changed": 3, "unchanged": 0}


@pytest.mark.usefixtures("lane")
def test_a_decision_takes_an_id_or_a_lane(cli: Cli) -> None:
    ended = cli("item", "release", "--reason", "?")

    assert ended.code == 2
    assert "either an ID or --lane" in ended.err


@pytest.mark.parametrize(
    ("verb", "option"),
    [
        ("hold", "--dry-run"),
        ("release", "--dry-run"),
        ("resolve", "--dry-run"),
        ("skip", "--dry-run"),
        ("hold", "--with-reason=lost"),
        ("hold", "--order-key=k"),
        ("hold", "--before=-1h"),
        ("skip", "--state=waiting"),
    ],
)
@pytest.mark.usefixtures("lane")
async def test_an_option_for_many_items_is_refused_beside_an_id(
    cli: Cli, db: Pool, *, verb: str, option: str
) -> None:
    """Somebody who writes --dry-run beside an ID wants nothing to be changed."""
    item_id = enqueue(cli, "1")
    if verb in {"release", "resolve"}:
        cli("item", "hold", str(item_id), "--reason", "?")
    before = await read_item(db, item_id)
    outcome = ("--as", "done") if verb == "resolve" else ()

    ended = cli("item", verb, str(item_id), "--reason", "?", option, *outcome)

    assert ended.code == 2
    assert f"{option.partition('=')[0]} is only for --lane" in ended.err
    assert await read_item(db, item_id) == before


@pytest.mark.usefixtures("lane")
async def test_cancel_and_reschedule_take_a_reason(cli: Cli, db: Pool) -> None:
    item_id = str(enqueue(cli, "1"))

    moved = cli("item", "reschedule", item_id, "+1h", "--reason", "not yet")
    cancelled = cli("item", "cancel", item_id, "--reason", "paid by hand")
    too_long = cli("item", "cancel", item_id, "--reason", "x" * 1001)

    assert (moved.code, cancelled.code, too_long.code) == (0, 0, 2)
    entries = await list_audit(db, subject=item_id)
    reasons = [json.loads(each.after or "")["reason"] for each in entries]
    assert reasons == ["paid by hand", "not yet"]


@pytest.mark.parametrize(
    "given", [("--as", "dead", "--result", "1", "--reason", "?"), ("--as", "done", "--reason", " ")]
)
@pytest.mark.usefixtures("lane")
def test_a_dry_run_refuses_what_the_decision_refuses(cli: Cli, given: tuple[str, ...]) -> None:
    command = ("item", "resolve", "--lane", LANE, *given)

    counted, decided = cli(*command, "--dry-run"), cli(*command, "--yes")

    assert (counted.code, decided.code) == (2, 2)
    assert counted.err == decided.err


@pytest.mark.usefixtures("lane")
def test_many_items_are_chosen_by_a_time_ago(cli: Cli) -> None:
    """`item list` takes -1h too."""
    enqueue(cli, "1")
    command = ("item", "hold", "--lane", LANE, "--reason", "?", "--dry-run", "--json")

    assert json.loads(cli(*command, "--before", "-1h").out) == {"matched": 0}


@pytest.mark.parametrize("verb", ["hold", "skip"])
@pytest.mark.usefixtures("lane")
async def test_the_question_names_the_verb_and_no_is_an_answer(
    cli: Cli, db: Pool, terminal: Callable[[str], None], *, verb: str
) -> None:
    """An operator must know what they confirm; one who declines has not interrupted anything."""
    assert cli("lane", "set", LANE, "ordering=per_key").code == 0
    item_id = enqueue(cli, "1", "--order-key", "k")
    terminal("n\n")
    state = ("--state", "waiting") if verb == "skip" else ()

    ended = cli("item", verb, "--lane", LANE, "--reason", "?", *state)

    assert f"{verb.capitalize()} 1 waiting items of lane {LANE}?" in ended.err
    assert (ended.code, "nothing was changed" in ended.err) == (1, True)
    found = await read_item(db, item_id)
    assert found is not None
    assert found.state == "ready"


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Generator[Callable[[str], None]]:
    """Make standard input a terminal, at which somebody types the given text."""
    keyboard, screen = os.openpty()
    with os.fdopen(screen) as stdin, os.fdopen(keyboard, "w") as typed:
        monkeypatch.setattr(sys, "stdin", stdin)
        yield lambda text: print(text, end="", file=typed, flush=True)


# -------------------------------------------------------------------------------------- workers


async def test_workers_are_listed_with_their_lanes(cli: Cli, db: Pool) -> None:
    """`penstock worker` without a subcommand goes on to run one."""
    await report_worker(db, "host:7:ab", [LANE, "mail"])

    shown = cli("worker", "list")
    listed = json.loads(cli("worker", "list", "--lane", LANE, "--json").out)

    assert "host:7:ab" in shown.out
    assert f"{LANE}, mail" in shown.out
    assert listed["is_alive"] is True
    assert cli("worker", "list", "--lane", "calls").err == "no worker runs lane calls\n"


@pytest.mark.usefixtures("lane")
def test_a_person_reads_why_an_item_has_not_run(cli: Cli) -> None:
    item_id = enqueue(cli, "1", "--key", "a")

    by_id = cli("item", "why", str(item_id))
    by_key = cli("item", "why", "--lane", LANE, "--key", "a", "--json")

    assert by_id.out == f"no_worker  no worker runs lane {LANE}\n"
    assert json.loads(by_key.out)["code"] == "no_worker"
    assert cli("lane", "why", LANE).out == by_id.out
    assert cli("item", "why").code == 2
    assert cli("item", "why", "1").code == 2


async def test_the_doctor_names_an_item_behind_a_dead_head(cli: Cli, db: Pool) -> None:
    """Nothing else in the installation looks wrong then."""
    assert cli("lane", "set", LANE, "--create", "ordering=per_key").code == 0
    head = enqueue(cli, "1", "--order-key", "a")
    follower = enqueue(cli, "2", "--order-key", "a")
    before = cli("doctor").out
    await kill(db, "refused")

    lines = cli("doctor").out.splitlines()

    assert ["ok", "blocked", "keys", "none"] in [line.split() for line in before.splitlines()]
    (found,) = [line for line in lines if "blocked keys" in line]
    assert found.startswith("warn")
    assert f"1 in {LANE}; item {follower} waits for dead item {head}" in found
    assert f"penstock item why {follower}" in found


@pytest.mark.usefixtures("lane")
def test_items_are_listed_by_filters(cli: Cli) -> None:
    first = enqueue(cli, "1", "--order-key", "a")
    second = enqueue(cli, "2", "--due-at", "2199-01-01T00:00:00Z")

    def found(*options: str) -> list[int]:
        ended = cli("item", "list", LANE, *options, "--json")
        assert ended.code == 0, ended.err
        return [json.loads(line)["id"] for line in ended.out.splitlines()]

    assert found() == [second, first]
    assert found("--state", "scheduled") == [second]
    assert found("--order-key", "a") == [first]
    assert found("--since", "-1h") == [second, first]
    assert found("--until", "-1h") == []
    assert cli("item", "list", LANE, "--state", "lost").code == 2
