"""The class of an error decides how it is answered: status, code, headers, and what is shown."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar

import pytest
from httpx import ASGITransport, Response
from structlog.testing import capture_logs

from penstock import Penstock
from penstock.api import create_app
from penstock.base.errors import PenstockError, Unavailable
from penstock.contract.http import Call, NoParameters, endpoint
from penstock.postgres.errors import DatabaseAway
from tests.api.scene import caller, problem

FAMILIES = {
    "InvalidInput": 400,
    "Unauthenticated": 401,
    "Forbidden": 403,
    "LaneIsOwned": 403,
    "ApprovalDenied": 403,
    "BadSignature": 401,
    "NotFound": 404,
    "Conflict": 409,
    "Unavailable": 503,
}
OPERATORS_FAULT = {
    "PenstockError", "BadSetting", "BadApp", "BadDomain", "BadMigration", "MigrationDenied",
    "Denied",
}  # fmt: skip
# Of all errors from 500 on, what a caller sees besides the status.
EXPOSED = {
    "DatabaseAway": "code",
    "DatabaseFull": "code",
    "DatabaseReadOnly": "code",
    "InvalidCalendar": "details",  # The item type of the caller, and a field of its calendar.
    "PoolExhausted": "details",
}


def own_errors(error: type[PenstockError] = PenstockError) -> Iterator[type[PenstockError]]:
    """Yield the errors of Penstock itself."""
    yield error
    for child in error.__subclasses__():
        if child.__module__.startswith("penstock."):
            yield from own_errors(child)


ERRORS = list(own_errors())


@dataclass(eq=False)
class CardDeclined(PenstockError):
    """An error of another package, about the caller's request."""

    code: ClassVar[str] = "card-declined"
    status: ClassVar[int] = 402
    retry_after: ClassVar[timedelta | None] = timedelta(minutes=1)
    card: str

    def __str__(self) -> str:
        return f"the bank has declined {self.card}"


@dataclass(eq=False)
class BankDown(PenstockError):
    """An error of another package, about what it depends on."""

    code: ClassVar[str] = "bank-down"
    status: ClassVar[int] = 502
    host: str

    def __str__(self) -> str:
        return f"{self.host} does not answer"


async def answered(error: PenstockError) -> Response:
    """Return the response to a request whose handler raises an error."""

    async def fail(_call: Call[NoParameters, None]) -> None:
        raise error

    app = Penstock(endpoints=(endpoint("GET", "/fail", fail, scope=None, summary="Fail"),))
    async with caller(ASGITransport(create_app(app)), None) as client:
        return await client.get("/fail")


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.__name__)
def test_an_error_has_the_status_of_its_family(error: type[PenstockError]) -> None:
    """A new error that nobody thought of here must not leave as a 500 by accident."""
    expected = [FAMILIES[one.__name__] for one in error.__mro__ if one.__name__ in FAMILIES]

    if error.__name__ in OPERATORS_FAULT:
        assert error.status == 500
    else:
        assert error.status == expected[0]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.__name__)
def test_an_error_from_500_on_shows_only_what_is_listed_here(error: type[PenstockError]) -> None:
    """Its message may name hosts, paths and users."""
    if error.status >= 500:
        assert error.exposes == EXPOSED.get(error.__name__, "status")


@pytest.mark.parametrize(
    ("error", "code"),
    [(DatabaseAway("10.0.0.7 refuses"), "database-away"), (Unavailable("10.0.0.7"), "unavailable")],
)
async def test_a_missing_dependency_is_answered_without_its_details(
    error: PenstockError, code: str
) -> None:
    response = await answered(error)

    shown = problem(response, 503, code)
    assert set(shown) == {"type", "title", "status", "detail", "request_id"}
    assert "10.0.0.7" not in response.text
    assert response.headers["retry-after"] == "5"


async def test_an_error_of_another_package_is_answered_as_its_class_says() -> None:
    """A domain of a third party must not need a change in the API."""
    response = await answered(CardDeclined("card-7"))

    shown = problem(response, 402, "card-declined")
    assert shown["detail"] == "the bank has declined card-7"
    assert shown["card"] == "card-7"
    assert response.headers["retry-after"] == "60"


async def test_a_failure_in_another_package_shows_no_details_unless_its_class_allows() -> None:
    with capture_logs() as lines:
        response = await answered(BankDown("bank.internal"))

    problem(response, 502, "internal")
    assert "bank.internal" not in response.text
    assert "retry-after" not in response.headers
    (line,) = lines
    assert line["error"] == "BankDown"
