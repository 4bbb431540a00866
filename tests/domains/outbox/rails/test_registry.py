"""Rails are rows: a change takes effect without a restart, and a broken one only waits."""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from httpx import AsyncClient
from structlog.testing import capture_logs

from examples.own_rail import BankRail
from penstock import Penstock
from penstock.api import create_app
from penstock.base.clock import FakeClock
from penstock.base.errors import InvalidInput
from penstock.base.log import LOGGABLE, get_logger
from penstock.base.meter import Meter
from penstock.base.settings import read_once, settings
from penstock.base.vault import Vault, parse_keys
from penstock.compose import outbox as composed
from penstock.compose.rails import make_rails
from penstock.contract import Domain, Resources, Runtime
from penstock.domains.outbox.commands.rails import code as code_group
from penstock.domains.outbox.commands.rails import rail as rail_group
from penstock.domains.outbox.errors import NoSimulator, UnknownCode, UnknownRail
from penstock.domains.outbox.http.rails import RailsApi, endpoints
from penstock.domains.outbox.lanes import LANE
from penstock.domains.outbox.rails.codes import Code, put_code, shipped_codes
from penstock.domains.outbox.rails.rail import Rail
from penstock.domains.outbox.rails.registry import (
    CachedRails,
    RailRow,
    check_rails,
    list_rails,
    put_rail,
    read_result_secret,
    remove_rail,
)
from penstock.domains.outbox.rails.simulator.service import SimulatorService
from penstock.domains.outbox.rails.simulator.settings import SimulatorSettings
from penstock.kernel.claim import Cursor, SlotRange, claim
from penstock.kernel.lane import read_lane
from penstock.postgres.pool import Pool, Queries
from penstock.testing import run_due
from tests.api.scene import called
from tests.domains.outbox.sending.scene import accept

BANK = RailRow(rail_type="bank", adapter="own", code_set="iso20022", destination_scheme="sepa")
HTTP_CONFIG = {
    "send": {"url": "https://bank.example/", "body": {}},
    "answer": {"code": ["status"]},
}


class OwnRail:
    """A rail that only shows what its factory got."""

    def __init__(self, config: Mapping[str, Any], secret: str | None) -> None:
        if "fails" in config:
            raise RuntimeError("this bank is closed")
        self.config = config
        self.secret = secret


def own(config: Mapping[str, Any], secret: str | None, _resources: Resources) -> Rail:
    return OwnRail(config, secret)  # pyright: ignore[reportReturnType]


async def always(_db: Queries) -> bool:
    return True


async def never(_db: Queries) -> bool:
    return False


def resources_of(db: Pool, *, vault: Vault | None = None) -> Resources:
    key = settings().secret_key
    assert key is not None
    return Resources(
        pool=db,
        settings=settings(),
        vault=vault or Vault(*parse_keys(key.get_secret_value())),
        log=get_logger(),
        meter=Meter(),
    )


@pytest.fixture
def resources(db: Pool) -> Resources:
    return resources_of(db)


@pytest.fixture
def rails(resources: Resources) -> CachedRails:
    """Rails that are checked at every call, so that no test waits."""
    return CachedRails(
        resources=resources,
        adapters={"own": own, "simulator": own},
        may_simulate=always,
        check_interval=timedelta(0),
    )


async def put(resources: Resources, row: RailRow, **secrets: str) -> None:
    async with resources.pool.acquire() as db:
        await put_rail(db, row, vault=resources.vault, who="test", **secrets)


async def test_a_rail_is_found_with_its_codes_and_secret(
    rails: CachedRails, resources: Resources
) -> None:
    row = replace(BANK, config={"x": 1}, timeout=timedelta(seconds=7), concurrency_max=3)
    await put(resources, row, secret="s3cret")

    found = await rails.find("bank")

    assert found is not None
    assert isinstance(found.rail, OwnRail)
    assert (found.rail.config, found.rail.secret) == ({"x": 1}, "s3cret")
    assert (found.timeout, found.concurrency_max) == (timedelta(seconds=7), 3)
    assert found.destination_scheme == "sepa"
    assert found.classify("AC04") == "terminal"
    assert found.classify("HTTP_503") == "unknown"
    assert found.classify("R01") == "unknown"


@pytest.mark.covers("E38")
async def test_a_code_without_a_row_is_unknown(rails: CachedRails, resources: Resources) -> None:
    """No part of a code decides: AC04X is not AC04."""
    await put(resources, BANK)

    found = await rails.find("bank")

    assert found is not None
    assert {found.classify(code) for code in ("AC04X", "ac04", "", "PAID")} == {"unknown"}


async def test_a_changed_code_counts_at_the_next_check(
    rails: CachedRails, resources: Resources
) -> None:
    await put(resources, BANK)
    before = await rails.find("bank")
    async with resources.pool.acquire() as db:
        await put_code(db, Code(code_set="iso20022", code="AM04", code_class="terminal"), who="t")

    after = await rails.find("bank")

    assert before is not None
    assert after is not None
    assert (before.classify("AM04"), after.classify("AM04")) == ("retryable", "terminal")


async def test_a_change_by_hand_counts_too(rails: CachedRails, resources: Resources) -> None:
    """Operators use psql; no trigger and no process has to know."""
    await put(resources, BANK)
    assert await rails.find("bank") is not None

    await resources.pool.execute("UPDATE penstock.outbox_rail SET timeout = interval '9 s'")
    changed = await rails.find("bank")
    await resources.pool.execute("DELETE FROM penstock.outbox_rail")

    assert changed is not None
    assert changed.timeout == timedelta(seconds=9)
    assert await rails.find("bank") is None


async def test_nothing_is_read_again_before_the_interval(resources: Resources) -> None:
    """Every send asks for its rail: a statement for each would halve the throughput."""
    rails = CachedRails(
        resources=resources,
        adapters={"own": own},
        may_simulate=always,
        check_interval=timedelta(hours=1),
    )
    await put(resources, BANK)
    first = await rails.find("bank")
    await resources.pool.execute("DELETE FROM penstock.outbox_rail")

    assert first is not None
    assert await rails.find("bank") is first


@pytest.mark.parametrize(
    "row",
    [
        replace(BANK, rail_type="broken", adapter="absent"),
        replace(BANK, rail_type="broken", config={"fails": True}),
    ],
)
async def test_a_rail_that_cannot_be_made_waits_and_others_go_on(
    rails: CachedRails, resources: Resources, row: RailRow
) -> None:
    await put(resources, row)
    await put(resources, BANK)

    assert await rails.find("broken") is None
    assert await rails.find("bank") is not None


async def test_a_rail_whose_secret_cannot_be_opened_waits(db: Pool, resources: Resources) -> None:
    await put(resources, BANK, secret="s3cret")
    other = resources_of(db, vault=Vault(b"another key that has 32 bytes...."[:32]))
    rails = CachedRails(resources=other, adapters={"own": own}, may_simulate=always)

    assert await rails.find("bank") is None
    finding = await check_rails(other)
    assert finding.verdict == "fail"
    assert "outbox rail bank" in finding.detail


async def test_doctor_names_a_rail_whose_reports_cannot_be_verified(
    db: Pool, resources: Resources
) -> None:
    """Each of them is refused, and the rail may not send it again."""
    await put(resources, replace(BANK, adapter="http_json", config=HTTP_CONFIG), result_secret="r")
    assert (await check_rails(resources)).verdict == "ok"

    other = resources_of(db, vault=Vault(b"another key that has 32 bytes...."[:32]))
    finding = await check_rails(other)

    assert finding.verdict == "fail"
    assert "results of outbox rail bank" in finding.detail


async def test_the_simulator_is_unusable_where_it_is_not_allowed(resources: Resources) -> None:
    """A payment that a simulator takes on a real database is lost money."""
    await put(resources, replace(BANK, rail_type="simulator", adapter="simulator"))
    rails = CachedRails(resources=resources, adapters={"simulator": own}, may_simulate=never)

    assert await rails.find("simulator") is None


async def test_doctor_names_the_missing_adapter(resources: Resources) -> None:
    assert (await check_rails(resources)).verdict == "warn"

    await put(resources, replace(BANK, adapter="absent"))
    finding = await check_rails(resources)

    assert finding.verdict == "fail"
    assert finding.detail == "bank needs the adapter 'absent'"


async def test_doctor_names_the_rails_that_instructions_wait_for(dsn: str) -> None:
    """They wait without an error; until now doctor said that all was well."""
    async with Penstock(dsn=dsn, domains=[composed.DOMAIN]) as app:
        resources = app.resources
        # Its config cannot be refused when it is stored: only its adapter knows it.
        await put(resources, replace(BANK, rail_type="sim", adapter="simulator", config={"x": 1}))
        for rail_type in ("spea", "sim"):
            await resources.pool.execute(
                "SELECT penstock.send_instruction($1, $1, 'k', $1, $2)",
                rail_type,
                '{"amount": "1.00", "currency": "EUR", "destination": {"iban": "x"}}',
            )
        with capture_logs() as lines:
            await run_due(app, FakeClock(datetime.now(UTC)))

        finding = await check_rails(resources)

    assert finding.verdict == "fail"
    assert "1 instructions wait for the rail spea: is missing" in finding.detail
    assert "1 instructions wait for the rail sim: a worker could not use it" in finding.detail
    (line,) = [line for line in lines if line["event"] == "rail.load_failed"]
    assert line["name"] == "sim"
    assert "name" in LOGGABLE, "or it is printed as [redacted]"


async def since(rails: CachedRails) -> datetime:
    found = await rails.find("bank")
    assert found is not None
    assert found.promises_since is not None
    return found.promises_since


CHANGES: dict[str, tuple[dict[str, Any], bool]] = {
    "config": ({"config": {"x": 2}}, True),
    "adapter": ({"adapter": "simulator"}, True),
    "shorter timeout": ({"timeout": timedelta(seconds=5)}, True),
    "longer timeout": ({"timeout": timedelta(seconds=45)}, False),
    "concurrency": ({"concurrency_max": 7}, False),
    "codes": ({"code_set": "nacha"}, False),
    "destinations": ({"destination_scheme": "any"}, False),
    "nothing": ({}, False),
}


@pytest.mark.parametrize("case", CHANGES)
async def test_a_change_of_where_and_how_is_called_begins_new_promises(
    rails: CachedRails, resources: Resources, case: str
) -> None:
    """What was called under the old row had perhaps no key, or another address."""
    changes, is_new = CHANGES[case]
    await put(resources, replace(BANK, config={"x": 1}))
    before = await since(rails)

    await put(resources, replace(replace(BANK, config={"x": 1}), **changes))

    assert (await since(rails) > before) == is_new


async def test_a_new_secret_and_a_change_by_hand_begin_new_promises(
    rails: CachedRails, resources: Resources
) -> None:
    """Another account at the bank does not find the payments of the first."""
    await put(resources, BANK)
    first = await since(rails)
    await put(resources, BANK, result_secret="r3sult")
    reported = await since(rails)

    await put(resources, BANK, secret="s3cret")
    second = await since(rails)
    await resources.pool.execute("""UPDATE penstock.outbox_rail SET config = '{"url": "x"}'""")
    third = await since(rails)

    assert first == reported < second < third


async def test_the_address_of_the_simulator_is_no_promise(
    rails: CachedRails, resources: Resources
) -> None:
    """It has another port at each start, and its ledger stays."""
    await put(resources, replace(BANK, adapter="simulator", config={"url": "http://127.0.0.1:1"}))
    before = await since(rails)

    await put(resources, replace(BANK, adapter="simulator", config={"url": "http://127.0.0.1:2"}))

    assert await since(rails) == before


async def test_a_rail_that_is_removed_and_put_again_begins_new_promises(
    rails: CachedRails, resources: Resources
) -> None:
    await put(resources, BANK)
    before = await since(rails)
    async with resources.pool.acquire() as db:
        await remove_rail(db, "bank", who="test")

    await put(resources, BANK)

    # A process may use the removed row for half a second.
    assert await since(rails) > before + timedelta(seconds=4)


async def test_a_change_while_instructions_are_in_doubt_has_a_notice(
    dsn: str, tmp_path: Path
) -> None:
    """A person must know that what the new row promises does not decide about them."""
    body = {"adapter": "http_json", "code_set": "iso20022", "config": HTTP_CONFIG}
    other = HTTP_CONFIG | {"is_asynchronous": True}
    file = tmp_path / "bank.json"
    file.write_text(json.dumps(HTTP_CONFIG))
    async with (
        Penstock(dsn=dsn, domains=[composed.DOMAIN]) as app,
        called(app, create_app(app)) as callers,
    ):
        await callers.admin.put("/outbox/rails/bank", json=body)
        await in_flight(app.pool)

        harmless = await callers.admin.put("/outbox/rails/bank", json=body | {"concurrency_max": 3})
        changed = await callers.admin.put("/outbox/rails/bank", json=body | {"config": other})
        told = await command(
            dsn, rail_group, "put", "bank", "--adapter", "http_json", "--code-set", "iso20022",
            "--config", str(file),
        )  # fmt: skip
        removed = await callers.admin.delete("/outbox/rails/bank")
        await callers.admin.put("/outbox/rails/bank", json=body)
        removed_told = await command(dsn, rail_group, "remove", "bank")

    notice = "0 instructions of bank are unknown and 1 in flight"
    assert "notice" not in harmless.json()
    for each in (changed.json()["notice"], removed.json()["notice"], told, removed_told):
        assert notice in each


async def in_flight(pool: Pool) -> None:
    """Have an instruction of the rail `bank` claimed."""
    async with pool.acquire() as db:
        await accept(db, "i1", rail_type="bank")
        lane = await read_lane(db, LANE)
        slots = SlotRange(ahead=timedelta(0))
        await claim(db, lane.lane_id, Cursor(), limit=1, worker="w", slots=slots)


async def test_a_stored_template_that_cannot_be_filled_is_not_sent(resources: Resources) -> None:
    """Such rows were accepted once; each instruction would go out under the same key."""
    simulator = SimulatorService(resources=resources, chosen=SimulatorSettings())
    closes: list[Any] = []
    rails = make_rails(resources, simulator, closes)
    await put(resources, replace(BANK, adapter="http_json", config=HTTP_CONFIG))
    await resources.pool.execute(
        """
        UPDATE penstock.outbox_rail
        SET config = jsonb_set(config, '{send,body}', '{"ref": "pay-{Key}"}')
        """
    )

    with capture_logs() as lines:
        found = await rails.find("bank")
    finding = await check_rails(resources)

    assert found is None
    (line,) = [line for line in lines if line["event"] == "rail.load_failed"]
    reason = "config.send.body.ref: has a brace that is not part of a field"
    assert reason in line["reason"]
    assert (finding.verdict, finding.detail) == ("fail", f"bank cannot be used: {reason}")
    for close in closes:
        await close()


async def test_secrets_are_sealed_kept_and_never_listed(resources: Resources) -> None:
    await put(resources, BANK, secret="s3cret", result_secret="r3sult")
    await put(resources, replace(BANK, concurrency_max=9))

    (row,) = await list_rails(resources.pool)
    stored = await resources.pool.fetchval("SELECT rail::text FROM penstock.outbox_rail AS rail")
    logged = await resources.pool.fetchval(
        "SELECT string_agg(a::text, ' ') FROM penstock.audit AS a"
    )

    assert (row.has_secret, row.has_result_secret, row.concurrency_max) == (True, True, 9)
    assert "s3cret" not in stored + logged
    secret = await read_result_secret(resources.pool, "bank", vault=resources.vault)
    assert secret == "r3sult"
    assert await read_result_secret(resources.pool, "none", vault=resources.vault) is None


async def test_an_unknown_rail_cannot_be_removed(resources: Resources) -> None:
    await put(resources, BANK)

    async with resources.pool.acquire() as db:
        await remove_rail(db, "bank", who="test")
        with pytest.raises(UnknownRail):
            await remove_rail(db, "bank", who="test")


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"rail_type": "Bank"}, "rail_type"),
        ({"adapter": ""}, "adapter"),
        ({"code_set": "a b"}, "code_set"),
        ({"destination_scheme": "moon"}, "destination_scheme"),
        ({"timeout": timedelta(seconds=46)}, "timeout_seconds"),
        ({"timeout": timedelta(0)}, "timeout_seconds"),
        ({"concurrency_max": 0}, "concurrency_max"),
        ({"config": {"x": "y" * 70_000}}, "config"),
        ({"adapter": "http_json", "config": {"send": 1}}, "config"),
    ],
)
async def test_a_wrong_rail_is_refused_with_its_field(
    resources: Resources, changes: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        await put(resources, replace(BANK, **changes))

    assert refused.value.field == field


async def test_the_composed_rails_have_both_built_in_adapters(resources: Resources) -> None:
    simulator = SimulatorService(resources=resources, chosen=SimulatorSettings())
    closes: list[Any] = []
    rails = make_rails(resources, simulator, closes)
    await put(resources, replace(BANK, adapter="http_json", config=HTTP_CONFIG))
    config = {"url": "http://127.0.0.1:1"}
    await put(resources, replace(BANK, rail_type="sim", adapter="simulator", config=config))
    outside = {"url": "http://192.0.2.1:1"}
    await put(resources, replace(BANK, rail_type="far", adapter="simulator", config=outside))

    assert await rails.find("bank") is not None
    assert await rails.find("sim") is not None
    assert await rails.find("far") is None
    for close in closes:
        await close()


# ----------------------------------------------------------------------- REST and commands


@pytest.fixture
async def admin(dsn: str) -> AsyncGenerator[AsyncClient]:
    """A client of an app that has these endpoints alone."""

    def build(resources: Resources) -> Runtime:
        simulator = SimulatorService(resources=resources, chosen=SimulatorSettings())
        return Runtime(endpoints=endpoints(RailsApi(vault=resources.vault, simulator=simulator)))

    domain = Domain(
        name="outbox",
        build=build,
        migration_packages=("penstock.domains.outbox",),
        errors=(UnknownRail, UnknownCode, NoSimulator),
    )
    async with Penstock(dsn=dsn, domains=[domain]) as app, called(app, create_app(app)) as callers:
        yield callers.admin


async def test_rails_are_put_listed_and_removed_over_rest(admin: AsyncClient) -> None:
    body = {"adapter": "http_json", "code_set": "nacha", "config": HTTP_CONFIG, "secret": "s3cret"}

    put = await admin.put("/outbox/rails/bank", json=body)
    listed = await admin.get("/outbox/rails")
    removed = [(await admin.delete("/outbox/rails/bank")).status_code for _ in range(2)]

    assert put.status_code == 200
    assert put.json()["has_secret"]
    assert "s3cret" not in listed.text
    assert [each["rail_type"] for each in listed.json()["rails"]] == ["bank"]
    assert removed == [200, 404]


async def test_a_mistyped_adapter_or_set_of_codes_has_a_notice(admin: AsyncClient) -> None:
    """Its instructions would wait for ever, or all be held as unknown."""
    body = {"adapter": "http_json", "code_set": "iso20022", "config": HTTP_CONFIG}

    right = await admin.put("/outbox/rails/bank", json=body)
    adapter = await admin.put("/outbox/rails/bank", json=body | {"adapter": "http_jsn"})
    codes = await admin.put("/outbox/rails/bank", json=body | {"code_set": "iso2022"})

    assert "notice" not in right.json()
    assert adapter.json()["notice"] == (
        "no package of this installation offers the adapter 'http_jsn'"
    )
    assert (
        codes.json()["notice"] == "the set 'iso2022' has no codes, so an answer's code is unknown"
    )


async def test_a_wrong_config_is_refused_over_rest(admin: AsyncClient) -> None:
    body = {"adapter": "http_json", "code_set": "nacha", "config": {"send": 1}}

    refused = await admin.put("/outbox/rails/bank", json=body)

    assert refused.status_code == 400
    assert refused.json()["field"] == "config"


async def test_codes_are_put_listed_and_removed_over_rest(admin: AsyncClient) -> None:
    put = await admin.put("/outbox/codes/own/E-1", json={"class": "terminal", "meaning": "no"})
    listed = await admin.get("/outbox/codes?code_set=own")
    removed = [(await admin.delete("/outbox/codes/own/E-1")).status_code for _ in range(2)]
    everything = await admin.get("/outbox/codes")

    assert put.json()["class"] == "terminal"
    assert [(each["code"], each["class"]) for each in listed.json()["codes"]] == [
        ("E-1", "terminal")
    ]
    assert removed == [204, 404]
    assert len(everything.json()["codes"]) == len(list(shipped_codes()))


async def test_the_ledger_is_shown_only_where_the_simulator_runs(admin: AsyncClient) -> None:
    absent = await admin.get("/outbox/simulator/ledger")

    assert absent.status_code == 404
    assert absent.json()["type"].endswith("no-simulator")


async def run(dsn: str, group: click.Group, *arguments: str, text: str = "") -> list[Any]:
    """Run a command, and return the lines of JSON that it prints."""
    return [json.loads(line) for line in (await invoke(dsn, group, *arguments, text=text))[0]]


async def command(dsn: str, group: click.Group, *arguments: str) -> str:
    """Run a command, and return what it says to a person."""
    return (await invoke(dsn, group, *arguments))[1]


async def invoke(
    dsn: str, group: click.Group, *arguments: str, text: str = ""
) -> tuple[list[str], str]:
    """Run a command in a thread, as it has an event loop of its own."""
    runner = CliRunner(env={"PENSTOCK_DATABASE_URL": dsn})
    read_once.cache_clear()
    result = await asyncio.to_thread(
        runner.invoke, group, arguments, input=text, catch_exceptions=False
    )
    read_once.cache_clear()
    assert result.exit_code == 0, result.output
    return result.stdout.splitlines(), result.stderr


async def test_rails_are_put_listed_and_removed_by_commands(dsn: str, tmp_path: Path) -> None:
    config = tmp_path / "bank.json"
    config.write_text(json.dumps(HTTP_CONFIG))

    await run(
        dsn, rail_group, "put", "bank", "--adapter", "http_json", "--config", str(config),
        "--code-set", "iso20022", "--destination-scheme", "sepa", "--secret", text="s3cret\n",
    )  # fmt: skip
    listed = await run(dsn, rail_group, "list", "--json")
    await run(dsn, rail_group, "remove", "bank")

    assert [(each["rail_type"], each["has_secret"]) for each in listed] == [("bank", True)]
    assert await run(dsn, rail_group, "list", "--json") == []


async def test_codes_are_put_listed_and_removed_by_commands(dsn: str) -> None:
    await run(dsn, code_group, "put", "own", "E-1", "pending", "--meaning", "later")
    listed = await run(dsn, code_group, "list", "own", "--json")
    await run(dsn, code_group, "remove", "own", "E-1")

    assert [(each["code"], each["class"]) for each in listed] == [("E-1", "pending")]
    assert await run(dsn, code_group, "list", "own", "--json") == []


async def test_an_adapter_of_another_package_is_found_by_its_entry_point(
    resources: Resources, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "my_bank-1.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: my-bank\nVersion: 1\n")
    points = "[penstock.rails]\nmy-bank = examples.own_rail:open_rail\n"
    (package / "entry_points.txt").write_text(points)
    monkeypatch.syspath_prepend(tmp_path)
    rails = CachedRails(resources=resources, adapters={}, may_simulate=never)
    await put(resources, replace(BANK, adapter="my-bank", config={"url": "http://127.0.0.1:1"}))

    found = await rails.find("bank")

    assert found is not None
    assert isinstance(found.rail, BankRail)
    assert (await check_rails(resources)).verdict == "ok"
    await found.rail.close()
