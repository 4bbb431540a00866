"""Labelled points at which tests of crashes end the process; nothing happens there otherwise."""

from collections.abc import Callable

# Called with the label of the point that is reached.
CrashPoint = Callable[[str], None]


def never_crash(_label: str) -> None:
    """Do nothing."""
