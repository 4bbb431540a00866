"""`penstock worker`: handlers and a sweeper, without the API. Many may run against one database."""

from pathlib import Path

import click

from penstock.app import Penstock
from penstock.base.aio import alongside
from penstock.base.errors import BadApp, InvalidInput
from penstock.cli.lifetime import Stop, run_until_stopped, work_until_asked
from penstock.cli.load import load_app
from penstock.cli.output import json_option, print_json
from penstock.cli.place import data_dir_option, find_dsn


@click.command()
@click.option(
    "--app", "spec", metavar="MODULE:NAME", required=True, help="Your Penstock, with its handlers."
)
@click.option("--lane", "lanes", multiple=True, help="Run this lane only; may be given again.")
@data_dir_option
@json_option
def worker(*, spec: str, lanes: tuple[str, ...], data_dir: Path | None, as_json: bool) -> None:
    """Run the handlers of an app, against one database, until told to stop."""
    app = load_app(spec)
    app.dsn = app.dsn or find_dsn(data_dir)

    async def run(stop: Stop) -> None:
        async with app, alongside(app.run_sweeper()):
            chosen = _chosen(app, spec, lanes)
            stop.started()
            if as_json:
                print_json({"lanes": chosen})
            else:
                click.echo(f"penstock works on {', '.join(chosen)}")
            await work_until_asked(app, stop, chosen)

    run_until_stopped(run)


def _chosen(app: Penstock, spec: str, lanes: tuple[str, ...]) -> list[str]:
    """Return the lanes to work on; domains have brought theirs only when the app is open."""
    if not app.kinds:
        raise BadApp(spec, "it has no handlers")
    unknown = sorted(set(lanes) - app.kinds.keys())
    if unknown:
        reason = f"{spec} has no handler for {', '.join(unknown)}, only for {', '.join(app.kinds)}"
        raise InvalidInput("lane", reason)
    return sorted(set(lanes) or app.kinds)
