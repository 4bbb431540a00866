"""Get the readers of other domains from the click context, where the group has put them."""

from collections.abc import Callable
from typing import TypeAlias

import click

from penstock.domains.payments.story import Elsewhere

MakeElsewhere: TypeAlias = Callable[[], Elsewhere]


def find_elsewhere() -> Elsewhere:
    """Return what the composition made for commands."""
    make_elsewhere: MakeElsewhere = click.get_current_context().obj
    return make_elsewhere()
