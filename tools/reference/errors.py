"""docs/reference/errors.md: the table of codes. What to do about each is written by hand."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass

import penstock.cli.root  # noqa: F401  Imports the errors of all layers and built-in domains.
from penstock.base.errors import PenstockError
from tools.reference.blocks import code, plain, table


def blocks(_page: str) -> dict[str, str]:
    """Return the table; each code links to its heading, so a page without one has a dead link."""
    heads = ("code", "class", "HTTP", "exit", "data", "meaning")
    return {"errors": table(heads, map(_row, _family(PenstockError)))}


def _family(error: type[PenstockError]) -> Iterator[type[PenstockError]]:
    yield error
    for child in sorted(error.__subclasses__(), key=lambda each: each.code):
        if child.__module__.startswith("penstock."):  # Not those of tests.
            yield from _family(child)


def _row(error: type[PenstockError]) -> tuple[str, ...]:
    data = [code(each.name) for each in fields(error)] if is_dataclass(error) else []
    meaning, _, _ = (error.__doc__ or "").partition("\n\n")
    return (
        f"[{code(error.code)}](#{error.code})",
        code(error.__name__),
        str(error.status),
        str(error.exit_code),
        ", ".join(data) or "none",
        plain(meaning),
    )
