"""The guard against header injection: a value of a header is one line. Pure."""

import re

from penstock.base.errors import InvalidInput

# Everything that some reader takes for the end of a line, the other control characters except the
# tab, and halves of characters, which have no UTF-8.
_FORBIDDEN = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def check_one_line(value: str, *, field: str) -> None:
    """Raise InvalidInput for a value that could end its header, or that no header can carry."""
    found = _FORBIDDEN.search(value)
    if found is not None:
        raise InvalidInput(field, f"contains {_describe(found[0])}")


def replace_forbidden(text: str) -> str:
    """Return a text from elsewhere as one line, for a message or a log."""
    return _FORBIDDEN.sub("?", text)


def _describe(character: str) -> str:
    if character in "\r\n\x85\u2028\u2029":
        return "a line break"
    return f"the control character U+{ord(character):04X}"
