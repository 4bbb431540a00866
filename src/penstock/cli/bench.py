"""`penstock bench`: run the benchmark of a source checkout; the package does not contain it."""

import subprocess
import sys
from pathlib import Path

import click

import penstock
from penstock.base.errors import InvalidInput

ROOT = Path(penstock.__file__).parents[2]


@click.command(context_settings={"ignore_unknown_options": True, "help_option_names": []})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def bench(*, arguments: tuple[str, ...]) -> None:
    """Measure against other queues on this machine.

    Works in a source checkout only, and takes the options of `python -m bench`, such as --quick and
    --list.
    """
    if not (ROOT / "bench" / "__main__.py").exists():
        raise InvalidInput("bench", "needs the source checkout: clone it and run `make bench`")
    command = [sys.executable, "-m", "bench", *arguments]
    sys.exit(subprocess.run(command, cwd=ROOT, check=False).returncode)  # noqa: S603  Fixed.
