"""`penstock lane`: show lanes and change their policy; a change applies from the next cycle on."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from penstock.app import default_policy
from penstock.base.errors import InvalidInput
from penstock.base.settings import settings
from penstock.cli.load import load_app
from penstock.cli.reasons import print_reasons
from penstock.console.database import ask, data_dir_option, operator
from penstock.console.output import json_option, print_record, print_rows, without
from penstock.console.values import parse_policy
from penstock.kernel.inspect import LaneDepth, measure_lanes
from penstock.kernel.lane import (
    Lane,
    PolicyDifference,
    create_lane,
    list_lanes,
    policy_of,
    read_lane,
    set_lane,
)
from penstock.kernel.why import why_lane
from penstock.postgres.pool import Connection


@click.group()
def lane() -> None:
    """Show lanes and change their policy."""


@lane.command("list")
@data_dir_option
@json_option
def list_(*, data_dir: Path | None, as_json: bool) -> None:
    """List the lanes with the number of their items (counted up to 100,000)."""

    async def read(db: Connection) -> list[dict[str, Any]]:
        depths = {depth.lane: depth for depth in await measure_lanes(db)}
        return [_row(each, depths.get(each.name)) for each in await list_lanes(db)]

    print_rows(ask(data_dir, read), as_json=as_json, none="there are no lanes yet")


@lane.command()
@click.argument("name")
@data_dir_option
@json_option
def show(*, name: str, data_dir: Path | None, as_json: bool) -> None:
    """Show a lane's policy, with the keys of `set`."""
    found = ask(data_dir, lambda db: read_lane(db, name))
    print_record(policy(found), as_json=as_json)


@lane.command()
@click.argument("name")
@data_dir_option
@json_option
def why(*, name: str, data_dir: Path | None, as_json: bool) -> None:
    """Show what keeps a lane from running items, one reason per line."""
    print_reasons(ask(data_dir, lambda db: why_lane(db, name)), as_json=as_json)


@lane.command("set")
@click.argument("name")
@click.argument("changes", nargs=-1, metavar="KEY=VALUE...")
@click.option("--create", is_flag=True, help="Create the lane if it does not exist.")
@data_dir_option
@json_option
def set_(
    *, name: str, changes: tuple[str, ...], create: bool, data_dir: Path | None, as_json: bool
) -> None:
    """Change a lane's policy, such as: rate=1000 burst=50 lease=2m enabled=false.

    Durations are 500ms, 30s, 5m, 1h, 2d or PT30S; `rate=none` removes the limit. All changes
    are made or none.
    """
    given = parse_policy(changes)
    if not given and not create:
        raise InvalidInput("changes", "give at least one key=value")

    async def change(db: Connection) -> Lane:
        async with db.transaction():
            if create:
                await create_lane(db, name, who=operator(), **default_policy(settings()))
            if not given:
                return await read_lane(db, name)
            return await set_lane(db, name, who=operator(), **given)

    print_record(policy(ask(data_dir, change)), as_json=as_json)


@lane.command()
@click.option("--app", "spec", metavar="MODULE:NAME", required=True, help="Your Penstock app.")
@data_dir_option
@json_option
def diff(*, spec: str, data_dir: Path | None, as_json: bool) -> None:
    """Show where lanes differ from what the handlers of an app declare.

    The lane's own value counts. `lane set` changes it; a decorator only sets that of a new lane.
    Lanes that do not exist yet are named on standard error.
    """
    app = load_app(spec)

    async def read(db: Connection) -> tuple[list[PolicyDifference], list[str]]:
        return await app.lane_differences(db), await app.missing_lanes(db)

    found, missing = ask(data_dir, read)
    for name in missing:
        click.echo(f"lane {name} does not exist: the app creates it when it opens", err=True)
    which = "every other lane" if missing else "every lane"
    none = f"{which} has the policy that its handler declares"
    print_rows([asdict(each) for each in found], as_json=as_json, none=none)


@lane.command()
@click.argument("name")
@data_dir_option
@json_option
def pause(*, name: str, data_dir: Path | None, as_json: bool) -> None:
    """Stop a lane: once this returns, nothing is claimed from it. No item is lost."""
    _switch(name, data_dir, enabled=False, as_json=as_json)


@lane.command()
@click.argument("name")
@data_dir_option
@json_option
def resume(*, name: str, data_dir: Path | None, as_json: bool) -> None:
    """Resume a paused lane."""
    _switch(name, data_dir, enabled=True, as_json=as_json)


def _switch(name: str, data_dir: Path | None, *, enabled: bool, as_json: bool) -> None:
    changed = ask(data_dir, lambda db: set_lane(db, name, who=operator(), enabled=enabled))
    record = {"name": changed.name, "enabled": changed.enabled}
    if as_json:
        print_record(record, as_json=True)
    else:
        click.echo(f"lane {changed.name} is {'running' if enabled else 'paused'}")


def policy(found: Lane) -> dict[str, Any]:
    """Return a lane as one flat record, with the field names that `lane set` takes."""
    owned = {"owner": found.owner, "guards": dict(found.guards)}
    return {"name": found.name} | policy_of(found) | owned | {"version": found.version}


def _row(found: Lane, depth: LaneDepth | None) -> dict[str, Any]:
    counts = {} if depth is None else without(asdict(depth), ["lane"])
    return {"name": found.name, "enabled": found.enabled, "rate": found.rate} | counts
