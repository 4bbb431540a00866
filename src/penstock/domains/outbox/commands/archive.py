"""Get the archive from the click context, where the group has put it."""

from collections.abc import Callable
from typing import TypeAlias

import click

from penstock.domains.outbox.audit.archive import Archive

MakeArchive: TypeAlias = Callable[[], Archive]


def find_archive() -> Archive:
    """Return the archive that the composition made for commands."""
    make_archive: MakeArchive = click.get_current_context().obj
    return make_archive()
