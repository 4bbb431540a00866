"""Amounts are exact: what a float, a typing error or another currency could change is refused."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.errors import InvalidInput
from penstock.base.money import (
    MINOR_MAX,
    InstructedAmount,
    currencies,
    exponent_of,
    read_money,
)
from penstock.postgres.pool import Pool


def refused_field(payload: dict[str, object]) -> str:
    with pytest.raises(InvalidInput) as refused:
        read_money(payload)
    return refused.value.field


@pytest.mark.parametrize(
    ("payload", "amount"),
    [
        ({"amount": "12.50", "currency": "EUR"}, "12.50"),
        ({"amount": "12.5", "currency": "EUR"}, "12.50"),
        ({"amount": "12", "currency": "EUR"}, "12.00"),
        ({"amount": "0.01", "currency": "USD"}, "0.01"),
        ({"amount": "1250", "currency": "JPY"}, "1250"),
        ({"amount": "1.234", "currency": "KWD"}, "1.234"),
        ({"amount": "1.2345", "currency": "CLF"}, "1.2345"),
        ({"amount_minor": 1250, "currency": "EUR"}, "12.50"),
        ({"amount_minor": 1250, "currency": "JPY"}, "1250"),
        ({"amount_minor": MINOR_MAX, "currency": "EUR"}, "9999999999999999.99"),
    ],
)
def test_an_amount_is_read_exactly(payload: dict[str, object], amount: str) -> None:
    money = read_money(payload)

    assert money.text == amount
    assert money.amount == Decimal(amount)


@pytest.mark.covers("E32", "E79")
@pytest.mark.parametrize(
    "amount",
    [
        12.5, 0.1, float("nan"), float("inf"), 12, True, None, "", " ", "0", "0.00", "-1", "+1",
        "-0.01", "1e3", "1E3", "NaN", "Infinity", "inf", "1_000", "1,50", "1.", ".5", "01", "1.234",
        " 1", "1\n", "١٢", "0x10", "1" * 17 + ".00", "9" * 5000, Decimal("1.5"), ["1"],
    ],
)  # fmt: skip
def test_an_amount_that_is_not_exact_and_above_zero_is_refused(amount: object) -> None:
    """A float has no cents, and a sign or an exponent is a slip or an attack."""
    assert refused_field({"amount": amount, "currency": "EUR"}) == "payload.amount"


@pytest.mark.parametrize("minor", [0, -1, 1.0, "1250", True, MINOR_MAX + 1, float("nan")])
def test_minor_units_are_an_integer_above_zero(minor: object) -> None:
    assert refused_field({"amount_minor": minor, "currency": "EUR"}) == "payload.amount_minor"


def test_two_amounts_are_refused() -> None:
    """They may differ, and nobody could say which one was meant."""
    payload: dict[str, object] = {"amount": "1.00", "amount_minor": 100, "currency": "EUR"}

    assert refused_field(payload) == "payload.amount"


@pytest.mark.covers("E33")
@pytest.mark.parametrize("currency", [None, "", "eur", "EURO", "EU", "XXX", "XAU", "DEM", 978])
def test_a_currency_is_an_active_code(currency: object) -> None:
    assert refused_field({"amount": "1.00", "currency": currency}) == "payload.currency"


def test_decimals_are_those_of_the_currency() -> None:
    """12.50 yen do not exist; rounding them would pay another amount."""
    assert refused_field({"amount": "12.50", "currency": "JPY"}) == "payload.amount"
    assert refused_field({"amount": "0.001", "currency": "EUR"}) == "payload.amount"


def test_the_table_of_currencies_has_the_known_exceptions() -> None:
    assert len(currencies()) == 165
    assert {code for code in currencies() if exponent_of(code) == 3} == {
        "BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND",
    }  # fmt: skip
    assert {code for code in currencies() if exponent_of(code) == 4} == {"CLF", "UYW"}
    assert exponent_of("JPY") == 0


@given(
    minor=st.integers(min_value=1, max_value=MINOR_MAX), code=st.sampled_from(["EUR", "JPY", "KWD"])
)
def test_text_and_minor_units_are_the_same_amount(minor: int, code: str) -> None:
    money = read_money({"amount_minor": minor, "currency": code})

    assert money.minor == minor
    assert read_money({"amount": money.text, "currency": code}) == money
    assert isinstance(money, InstructedAmount)


async def test_the_database_knows_the_exponents_of_all_currencies(db: Pool) -> None:
    """If one of them takes cents for units, a payment is a hundred times too large."""
    rows = await db.fetch(
        "SELECT code, penstock.currency_unit(code) AS unit FROM unnest($1::text[]) AS code",
        list(currencies()),
    )

    assert {row["code"]: row["unit"] for row in rows} == {
        code: Decimal(1).scaleb(-exponent) for code, exponent in currencies().items()
    }
