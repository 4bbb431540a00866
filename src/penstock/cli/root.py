"""The command `penstock` itself: its verbs, its version, and how it ends."""

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NoReturn

import click

from penstock.base.errors import BadSetting
from penstock.base.log import configure
from penstock.base.settings import settings
from penstock.cli.bench import bench
from penstock.cli.dead import dead
from penstock.cli.demo import demo
from penstock.cli.doctor import doctor
from penstock.cli.errors import BadApp, WorkerNotStarted
from penstock.cli.item import item
from penstock.cli.kafka import kafka
from penstock.cli.key import key
from penstock.cli.lane import lane
from penstock.cli.migrate import migrate
from penstock.cli.serve import serve
from penstock.cli.temporal import temporal
from penstock.cli.up import up
from penstock.cli.worker import worker
from penstock.compose.domains import KERNEL, chosen_domains
from penstock.console import exits
from penstock.contract import check_domains

VERBS = (
    up, serve, worker, migrate, demo, lane, item, dead, kafka, temporal, key, doctor, bench,
)  # fmt: skip

TEMPORAL_THREADS = "temporalio.bridge.temporal_sdk_bridge"  # The module that starts them.


def command_line() -> click.Group:
    """Return the command `penstock` with its own verbs and those of the chosen domains."""

    @click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
    @click.version_option(package_name="penstock", message="penstock %(version)s")
    def penstock() -> None:
        """Run due work at a rate that the receiving side can handle.

        `penstock up` runs everything in one process. Most other commands connect to the
        database in PENSTOCK_DATABASE_URL or, without it, to the one that `up` runs in this folder.

        Exit codes: 0 done, 1 failed, 2 bad input (nothing was written), 3 conflict with what is
        stored, 4 a dependency is unavailable or in use, 130 interrupted.
        """
        chosen = settings()
        configure(chosen.log_level, chosen.log_format)

    own = replace(KERNEL, commands=VERBS, errors=(*KERNEL.errors, BadApp, WorkerNotStarted))
    domains = (own, *chosen_domains())
    check_domains(domains)
    for domain in domains:
        for command in domain.commands:
            penstock.add_command(command)
    return penstock


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit the process with one of the codes of `exits`."""
    try:
        exits.run(lambda: command_line()(arguments, standalone_mode=False), is_debug=_is_debug)
    except SystemExit as ended:
        if arguments is None and TEMPORAL_THREADS in sys.modules:
            _end_at_once(ended)
        raise


def _end_at_once(ended: SystemExit) -> NoReturn:
    """End the process with its code, but do not finalize the interpreter.

    Threads of Temporal's SDK that want the interpreter at that moment abort the process with a
    signal. Everything that a command opens is closed by now.
    """
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(int(ended.code or 0))


def _is_debug() -> bool:
    try:
        return settings().log_level == "debug"
    except BadSetting:
        return False
