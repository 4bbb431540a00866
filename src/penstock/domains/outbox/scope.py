"""What a switch, a limit or a failure policy is about: everything, one rail or one participant."""

from typing import Literal

from penstock.base.errors import InvalidInput

Scope = Literal["all", "rail", "participant"]

NAME_LENGTH_MAX = 255  # Of an order key, which a participant is.
EVERY = "*"  # The name of the scope `all`.


def check_scope(scope: Scope, name: str | None) -> str:
    """Return the name under which a row is stored; raises InvalidInput."""
    if scope == "all":
        if name not in (None, EVERY):
            raise InvalidInput("name", "must be absent for the scope all")
        return EVERY
    if name is None or not 1 <= len(name) <= NAME_LENGTH_MAX or not name.isprintable():
        raise InvalidInput("name", f"must have 1 to {NAME_LENGTH_MAX} printable characters")
    if name == EVERY:
        raise InvalidInput("name", "must name one; use the scope all for everything")
    return name
