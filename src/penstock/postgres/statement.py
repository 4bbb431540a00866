"""SQL statements from files, loaded at import. The only module that casts text to LiteralString."""

from importlib.resources import files
from typing import LiteralString, cast


def statement(package: str | None, name: str) -> LiteralString:
    """Return the text of `sql/<name>` in `package`, which the caller gives as `__package__`."""
    assert package is not None, "a module outside a package owns no SQL"
    return read_sql(package, "sql", name)


def read_sql(package: str, folder: str, name: str) -> LiteralString:
    """Return the text of a `.sql` file that is shipped inside `package`."""
    text = (files(package) / folder / name).read_text(encoding="utf-8")
    return cast("LiteralString", text)


def composed_by_server(text: str) -> LiteralString:
    """Return a statement that PostgreSQL has composed with `format`, which quotes the names."""
    return cast("LiteralString", text)
