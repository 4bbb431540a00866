"""Get the readers of other domains from the click context, where the group has put them."""

from collections.abc import Callable
from typing import TypeAlias

import click

from penstock.domains.payments.story import DomainReaders

MakeReaders: TypeAlias = Callable[[], DomainReaders]


def find_readers() -> DomainReaders:
    """Return what the composition made for commands."""
    make_readers: MakeReaders = click.get_current_context().obj
    return make_readers()
