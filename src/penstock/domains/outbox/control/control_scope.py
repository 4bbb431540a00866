"""What a switch, a limit or a failure policy is about: everything, one rail or one participant."""

from typing import Literal

from penstock.base.errors import InvalidInput
from penstock.postgres.pool import Queries
from penstock.postgres.statement import statement

IS_KNOWN = statement(__package__, "is_known.sql")

ControlScope = Literal["all", "rail", "participant"]

NAME_LENGTH_MAX = 255  # Of an order key, which a participant is.
EVERY = "*"  # The name of the scope `all`.


def check_scope(scope: ControlScope, name: str | None) -> str:
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


async def check_known(db: Queries, scope: ControlScope, name: str, *, field: str = "name") -> None:
    """Raise InvalidInput for a rail that does not exist: a mistyped one would stop nothing.

    A participant may be set up before its first instruction; `find_notice` names one without any.
    """
    if scope == "rail" and not await db.fetchval(IS_KNOWN, scope, name):
        raise InvalidInput(field, f"there is no rail {name!r}")


async def find_notice(db: Queries, scope: ControlScope, name: str | None) -> str | None:
    """Return what a person should know who has just set this: the name may be mistyped."""
    if scope == "participant" and not await db.fetchval(IS_KNOWN, scope, name):
        return f"participant {name!r} has sent no instruction yet"
    return None
