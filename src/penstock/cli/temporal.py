"""`penstock temporal`: workers of payments on Temporal, their schedules, and their status."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import click

from penstock.app import Penstock
from penstock.base.aio import alongside
from penstock.base.errors import MissingExtra
from penstock.cli.lifetime import listening
from penstock.cli.load import load_app
from penstock.compose.temporal import is_installed
from penstock.console.database import (
    data_dir_option,
    find_dsn,
    lent_resources,
    no_migrate_option,
)
from penstock.console.output import json_option, print_json, print_record, print_rows
from penstock.console.process import StopSignal, check_host, run_until_stopped
from penstock.domains.payments.schedule import Payments

NAMES = ("dispatch", "init", "exec")


@click.group()
def temporal() -> None:
    """Execute payments on Temporal."""


@temporal.command()
@click.option(
    "--app",
    "spec",
    metavar="MODULE:NAME",
    help="Your Penstock app, for the steps of its payments in both phases.",
)
@click.option(
    "--only",
    multiple=True,
    type=click.Choice(NAMES),
    help="Run just this worker; may be repeated. Without it, all three run.",
)
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    help="Serve /metrics and /health here; 0: any port.",
)
@click.option(
    "--metrics-host", default="127.0.0.1", show_default=True, help="Address for --metrics-port."
)
@no_migrate_option
@data_dir_option
@json_option
def worker(
    *,
    spec: str | None,
    only: tuple[str, ...],
    metrics_port: int | None,
    metrics_host: str,
    no_migrate: bool,
    data_dir: Path | None,
    as_json: bool,
) -> None:
    """Run the workers of payments on Temporal until the process is stopped.

    The worker `dispatch` keeps the schedules of item types with the engine `temporal_schedule` in
    step with their rows. Ctrl-C or SIGTERM finishes the activities in progress.
    """
    _require_extra()
    from penstock.compose.payments import ExecutionSteps  # noqa: PLC0415  An extra.
    from penstock.compose.temporal_workers import temporal_service  # noqa: PLC0415

    app = load_app(spec) if spec else Penstock()
    app.dsn, app.data_dir = app.dsn or find_dsn(data_dir), app.data_dir or data_dir
    app.migrates = app.migrates and not no_migrate
    check_host(metrics_host)
    names = [name for name in NAMES if not only or name in only]

    async def run(stop: StopSignal) -> None:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(app)
            started: dict[str, Any] = {"workers": names}
            if metrics_port is not None:
                started["metrics"] = await stack.enter_async_context(
                    listening(app, host=metrics_host, port=metrics_port, is_health_only=True)
                )
            stop.started()
            print_json(started) if as_json else click.echo(_summary(started))
            # Leases of cycles that have failed end here, also where no other worker runs.
            async with alongside(app.run_sweeper()):
                service = temporal_service(
                    app.resources,
                    names,
                    steps=app.api(Payments).steps,
                    execution=app.api(ExecutionSteps),
                )
                await app.run_service(service, stop.asked)

    run_until_stopped(run)


@temporal.command()
@data_dir_option
@json_option
def schedule(*, data_dir: Path | None, as_json: bool) -> None:
    """Create, change or remove the schedules on Temporal, as the rows of item types say."""
    _require_extra()
    from penstock.compose.temporal_workers import sync_schedules  # noqa: PLC0415  An extra.

    async def sync() -> list[dict[str, Any]]:
        async with lent_resources(data_dir) as resources:
            return await sync_schedules(resources)

    print_rows(asyncio.run(sync()), as_json=as_json, none="no item types")


@temporal.command()
@data_dir_option
@json_option
def status(*, data_dir: Path | None, as_json: bool) -> None:
    """Show, for each item type, its engine, its schedule, its workers and its open workflows."""
    _require_extra()
    from penstock.compose.temporal_workers import read_status  # noqa: PLC0415  An extra.

    async def read() -> list[dict[str, Any]]:
        async with lent_resources(data_dir) as resources:
            return await read_status(resources)

    print_rows(asyncio.run(read()), as_json=as_json, none="no item types")


@temporal.command()
@click.argument("payment_id", metavar="ID")
@data_dir_option
@json_option
def start(*, payment_id: str, data_dir: Path | None, as_json: bool) -> None:
    """Start the execution of a dispatched payment again, with the context that is stored for it.

    For a payment whose workflow was terminated, has failed, or is not on Temporal any more. A
    workflow that runs or has completed is left alone, and what is done is not done twice.
    """
    _require_extra()
    from penstock.compose.temporal_workers import start_execution  # noqa: PLC0415  An extra.

    async def execute() -> dict[str, Any]:
        async with lent_resources(data_dir) as resources:
            return await start_execution(resources, payment_id)

    print_record(asyncio.run(execute()), as_json=as_json)


def _require_extra() -> None:
    if not is_installed():
        raise MissingExtra("temporal", "penstock temporal")


def _summary(started: dict[str, Any]) -> str:
    names = f"penstock runs workers on Temporal: {', '.join(started['workers'])}"
    return f"{names}; metrics at {started['metrics']}/metrics" if "metrics" in started else names
