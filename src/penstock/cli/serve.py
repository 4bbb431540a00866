"""`penstock serve`: the API alone. Many may run against one database."""

from functools import partial
from pathlib import Path

import click

from penstock.app import Penstock
from penstock.base.settings import settings
from penstock.cli.first_key import ensure_given_key
from penstock.cli.lifetime import listening
from penstock.cli.load import load_app
from penstock.console.database import data_dir_option, find_dsn, no_migrate_option
from penstock.console.output import json_option, print_json
from penstock.console.process import StopSignal, check_host, run_until_stopped


@click.command()
@click.option(
    "--app", "spec", metavar="MODULE:NAME", help="Your Penstock app; its payload types are checked."
)
@click.option("--host", help="Address of the API.  [127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65535), help="Port of the API, 0 for any.  [8080]")
@no_migrate_option
@data_dir_option
@json_option
def serve(
    *,
    spec: str | None,
    host: str | None,
    port: int | None,
    no_migrate: bool,
    data_dir: Path | None,
    as_json: bool,
) -> None:
    """Run the REST API without a worker."""
    app = load_app(spec) if spec else Penstock()
    app.migrates = app.migrates and not no_migrate
    app.dsn, app.data_dir = app.dsn or find_dsn(data_dir), app.data_dir or data_dir
    chosen_host = settings().host if host is None else host
    check_host(chosen_host)
    chosen_port = settings().port if port is None else port

    async def run(stop: StopSignal) -> None:
        prepare = partial(ensure_given_key, app)
        async with app, listening(app, host=chosen_host, port=chosen_port, prepare=prepare) as url:
            stop.started()
            print_json({"api": url}) if as_json else click.echo(f"penstock serves {url}")
            await stop.asked.wait()

    run_until_stopped(run)
