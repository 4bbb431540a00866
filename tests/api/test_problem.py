"""Every error of ours has a status, decided in one place."""

import pytest

from penstock.api.problem import status_of
from penstock.base import errors
from penstock.base.errors import PenstockError

FAMILIES = {
    "InvalidInput": 400,
    "Unauthenticated": 401,
    "Forbidden": 403,
    "NotFound": 404,
    "Conflict": 409,
    "Unavailable": 503,
}
OUR_OWN_FAULT = {"PenstockError", "BadSetting", "BadApp", "BadMigration", "Denied"}


def all_errors() -> list[type[PenstockError]]:
    return [
        found
        for found in vars(errors).values()
        if isinstance(found, type) and issubclass(found, PenstockError)
    ]


@pytest.mark.parametrize("error", all_errors(), ids=lambda error: error.__name__)
def test_an_error_has_the_status_of_its_family(error: type[PenstockError]) -> None:
    """A new error that nobody thought of here must not leave as a 500 by accident."""
    expected = [FAMILIES[one.__name__] for one in error.__mro__ if one.__name__ in FAMILIES]

    if error.__name__ in OUR_OWN_FAULT:
        assert status_of(error) == 500
    else:
        assert status_of(error) == expected[0]
