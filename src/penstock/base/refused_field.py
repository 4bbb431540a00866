"""Name the field that msgspec refuses, so that an answer says which one to correct."""

import re

import msgspec

from penstock.base.errors import InvalidInput

NAME_LENGTH_MAX = 100  # Of a field name that a response repeats.

_NAMED = re.compile(r"(unknown|missing required) field `(.*)`", re.DOTALL)


def name_field(refused: msgspec.ValidationError) -> InvalidInput:
    """Return the error with its field: msgspec's messages end in a path such as `$[3].due_at`."""
    message, _, path = str(refused).partition(" - at `$")
    place = path.removesuffix("`").removeprefix(".")
    if place.startswith("["):
        place = f"items{place}"
    named = _NAMED.search(message)
    if named is None:
        return InvalidInput(shorten(place) or "body", to_reason(message))
    field = ".".join(filter(None, (place, named[2])))
    return InvalidInput(shorten(field), f"is {named[1].removesuffix(' required')}")


def to_reason(message: str) -> str:
    """Return a message of msgspec as the reason of an InvalidInput."""
    return message if message[:2].isupper() else message[:1].lower() + message[1:]


def shorten(name: str) -> str:
    """Return the name of a field as a response repeats it."""
    return name[:NAME_LENGTH_MAX]
