"""`penstock worker`: handlers and a sweeper, without the API. Many may run against one database.

`penstock worker list` shows them.
"""

from contextlib import AsyncExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from penstock.app import Penstock
from penstock.base.aio import alongside
from penstock.cli.lifetime import listening, work_until_asked
from penstock.cli.load import load_app
from penstock.console.database import ask, data_dir_option, find_dsn, no_migrate_option
from penstock.console.output import json_option, print_json, print_rows
from penstock.console.process import StopSignal, check_host, run_until_stopped
from penstock.kernel.heartbeat import list_workers


@click.group(invoke_without_command=True)
@click.option(
    "--app",
    "spec",
    metavar="MODULE:NAME",
    help="Your Penstock app, with handlers besides the built-in ones.",
)
@click.option("--lane", "lanes", multiple=True, help="Run this lane only; may be given again.")
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
@click.pass_context
def worker(
    context: click.Context,
    *,
    spec: str | None,
    lanes: tuple[str, ...],
    metrics_port: int | None,
    metrics_host: str,
    no_migrate: bool,
    data_dir: Path | None,
    as_json: bool,
) -> None:
    """Run the handlers of the built-in domains and of an app, and a sweeper, without the API."""
    if context.invoked_subcommand is not None:
        return
    app = load_app(spec) if spec else Penstock()
    app.migrates = app.migrates and not no_migrate
    app.dsn, app.data_dir = app.dsn or find_dsn(data_dir), app.data_dir or data_dir
    check_host(metrics_host)

    async def run(stop: StopSignal) -> None:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(app)
            await stack.enter_async_context(alongside(app.run_sweeper()))
            # Checked first: what a supervised worker refuses would be tried again.
            found = await app.keep_trying(lambda: app.find_lanes(lanes or None))
            started: dict[str, Any] = {"lanes": found}
            if metrics_port is not None:
                started["metrics"] = await stack.enter_async_context(
                    listening(app, host=metrics_host, port=metrics_port, is_health_only=True)
                )
            stop.started()
            print_json(started) if as_json else click.echo(_summary(started))
            # Not those of now: the lane of an item type that is added later is found as well.
            await work_until_asked(app, stop, list(lanes) or None)

    run_until_stopped(run)


@worker.command("list")
@click.option("--lane", help="Only those that run this lane.")
@data_dir_option
@json_option
def list_(*, lane: str | None, data_dir: Path | None, as_json: bool) -> None:
    """List the workers, the oldest first, with their lanes and when each was last seen.

    A worker that is not alive has not reported for 20 seconds: it crashed, is suspended, or has
    lost the database. Its row is deleted after a day.
    """
    found = ask(data_dir, lambda db: list_workers(db, lane=lane))
    none = "no worker runs" if lane is None else f"no worker runs lane {lane}"
    print_rows([asdict(each) for each in found], as_json=as_json, none=none)


def _summary(started: dict[str, Any]) -> str:
    lanes = f"penstock works on {', '.join(started['lanes'])}"
    return f"{lanes}; metrics at {started['metrics']}/metrics" if "metrics" in started else lanes
