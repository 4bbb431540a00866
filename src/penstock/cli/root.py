"""The command `penstock` itself: its verbs, its version, and how it ends."""

from collections.abc import Sequence
from typing import NoReturn

import click

from penstock.base.errors import BadSetting
from penstock.base.log import configure
from penstock.base.settings import settings
from penstock.cli import exits
from penstock.cli.bench import bench
from penstock.cli.dead import dead
from penstock.cli.demo import demo
from penstock.cli.doctor import doctor
from penstock.cli.event import event
from penstock.cli.item import item
from penstock.cli.kafka import kafka
from penstock.cli.key import key
from penstock.cli.lane import lane
from penstock.cli.listen import listen
from penstock.cli.migrate import migrate
from penstock.cli.replay import replay
from penstock.cli.serve import serve
from penstock.cli.slots import slots
from penstock.cli.subscription import subscription
from penstock.cli.up import up
from penstock.cli.worker import worker


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="penstock", message="penstock %(version)s")
def penstock() -> None:
    """Let due work out at a rate the other side can bear.

    `penstock up` runs everything in one process. Most other commands talk to the database that
    PENSTOCK_DATABASE_URL names or, without that, to the one that `up` runs in this folder.

    Exit codes: 0 done, 1 failed, 2 bad input (nothing was written), 3 conflict with what is
    stored, 4 something needed is away or taken, 130 interrupted.
    """
    chosen = settings()
    configure(chosen.log_level, chosen.log_format)


for verb in (
    up, serve, worker, migrate, demo, lane, item, dead, slots, subscription, event, replay, listen,
    kafka, key, doctor, bench,
):  # fmt: skip
    penstock.add_command(verb)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and leave the process with one of the codes of `exits`."""
    exits.run(lambda: penstock(arguments, standalone_mode=False), is_debug=_is_debug)


def _is_debug() -> bool:
    try:
        return settings().log_level == "debug"
    except BadSetting:
        return False
