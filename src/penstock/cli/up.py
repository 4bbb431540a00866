"""`penstock up`: everything in one process, with an embedded PostgreSQL unless another is set."""

from pathlib import Path

import click

from penstock.app import Penstock
from penstock.base.aio import alongside
from penstock.base.settings import settings
from penstock.cli.first_key import ensure_admin_key
from penstock.cli.hints import commands
from penstock.cli.lifetime import listening, opened, work_until_asked
from penstock.cli.load import load_app
from penstock.console.database import data_dir_option, no_migrate_option
from penstock.console.output import json_option, print_json, print_lines
from penstock.console.process import StopSignal, check_host, run_until_stopped
from penstock.postgres.pool import address


@click.command()
@click.option(
    "--app",
    "spec",
    metavar="MODULE:NAME",
    help="Your Penstock app with its handlers; the current folder is on the import path.",
)
@click.option("--host", help="Address of the API.  [127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65535), help="Port of the API, 0 for any.  [8080]")
@click.option("--no-worker", is_flag=True, help="Run no handlers: only API, sweeper and database.")
@no_migrate_option
@data_dir_option
@json_option
def up(
    *,
    spec: str | None,
    host: str | None,
    port: int | None,
    no_worker: bool,
    no_migrate: bool,
    data_dir: Path | None,
    as_json: bool,
) -> None:
    """Run the API, the worker, the sweeper and the database in one process.

    Without PENSTOCK_DATABASE_URL the database is an embedded PostgreSQL. Prints the URLs, and an
    admin key if it had to create one.

    Ctrl-C or SIGTERM stops claiming, finishes what is in flight within
    PENSTOCK_SHUTDOWN_GRACE_SECONDS and gives back the rest.
    """
    app = load_app(spec) if spec else Penstock()
    app.migrates = app.migrates and not no_migrate
    chosen_host = settings().host if host is None else host
    check_host(chosen_host)
    chosen_port = settings().port if port is None else port

    async def run(stop: StopSignal) -> None:
        token: str | None = None

        async def prepare() -> None:
            nonlocal token
            token = await ensure_admin_key(app)

        async with (
            opened(app, data_dir),
            alongside(app.run_sweeper()),
            listening(app, host=chosen_host, port=chosen_port, prepare=prepare) as url,
        ):
            stop.started()
            _announce(app, url, token, as_json=as_json)
            if not as_json:
                _print_hints(app, url, has_own_app=spec is not None)
            await (stop.asked.wait() if no_worker else work_until_asked(app, stop))

    run_until_stopped(run)


def _print_hints(app: Penstock, url: str, *, has_own_app: bool) -> None:
    """Print a command for each domain; in a program of the user's own, nothing."""
    if has_own_app:
        return
    click.echo("try these, after export KEY=… with an API key:")
    for what, command in commands(url, app.all_domains()):
        click.echo(f"  # {what}\n  {command}")
    click.echo("  hint: give your own handlers with --app module:name")


def _announce(app: Penstock, url: str, token: str | None, *, as_json: bool) -> None:
    """Print URLs, database, lanes and token; the token is never shown again."""
    urls = {"api": url, "docs": f"{url}/docs", "health": f"{url}/health"}
    if as_json:
        print_json(urls | {"admin_key": token, "lanes": sorted(app.kinds)})
        return
    lines = [[name, link] for name, link in urls.items()]
    lines.append(["database", address(app.address)])
    lines.append(["lanes", ", ".join(sorted(app.kinds))])
    if token:
        lines.append(["admin key", f"{token}  (shown this once: keep it)"])
    print_lines([["penstock is up", ""], *([f"  {name}", value] for name, value in lines)])
