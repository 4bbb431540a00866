"""Names of rails, adapters and code sets."""

import re

from penstock.base.errors import InvalidInput

_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,62}")  # As the CHECKs of the tables.


def check_name(field: str, name: str) -> None:
    """Raise InvalidInput for a name that the tables refuse."""
    if not _NAME.fullmatch(name):
        raise InvalidInput(field, "must be 1 to 63 of a-z, 0-9, dot, dash and underscore")
