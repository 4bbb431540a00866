"""What our server can do for usual calls beyond ASGI, where each step has its price.

A body that has come whole is handed over without a wait, and an answer leaves in one go instead of
in two messages with every header checked. That was a seventh of a call. Other servers know nothing
of it, and neither do streams.
"""

from typing import Protocol

from starlette.types import Scope

NAME = "penstock.short_way"  # Among the extensions of an ASGI scope.


class ShortWay(Protocol):
    """The short way of one call."""

    def take_body(self) -> bytes | None:
        """Return the body if all of it is here, and nobody has read it; else it is as it was."""
        ...

    def answer(self, status: int, lines: bytes, body: bytes) -> bool:
        """Send an answer with these header lines; say whether it was sent."""
        ...


def short_way(scope: Scope) -> ShortWay | None:
    """Return the short way if the server has one."""
    extensions: dict[str, ShortWay] = scope.get("extensions", {})
    return extensions.get(NAME)
