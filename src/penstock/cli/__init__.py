"""The command line: one verb, or one noun with its verbs, per module. Logic is elsewhere."""

import gc
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit; without `arguments`, it is the whole process."""
    if arguments is None:
        _load_commands()
    from penstock.cli import root  # noqa: PLC0415  After the search is off.

    root.main(arguments)


def _load_commands() -> None:
    """Import the commands without garbage collection, and exclude what they created from it.

    Modules live until the process ends: to search them for garbage took a sixth of a start's CPU.
    """
    gc.disable()
    import_module("penstock.cli.root")
    gc.freeze()
    gc.enable()


__all__ = ["main"]
