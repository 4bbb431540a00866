"""Get what the composition made for commands from the click context, where the group has put it."""

from collections.abc import Callable
from dataclasses import dataclass

import click

from penstock.domains.payments.steps import Steps
from penstock.domains.payments.story import DomainReaders


@dataclass(frozen=True, slots=True, kw_only=True)
class Composed:
    """What commands need of other domains; made when a verb asks for it."""

    make_readers: Callable[[], DomainReaders]
    make_steps: Callable[[], Steps]


def find_readers() -> DomainReaders:
    """Return what reads in other domains."""
    return _composed().make_readers()


def find_steps() -> Steps:
    """Return the shipped steps of phase A."""
    return _composed().make_steps()


def _composed() -> Composed:
    composed: Composed = click.get_current_context().obj
    return composed
