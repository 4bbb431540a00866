"""A destination that cannot be right is refused before any rail is called."""

import pytest

from penstock.base.errors import InvalidInput
from penstock.domains.outbox.rails.destination import DestinationScheme, check_destination

IBAN = "DE89370400440532013000"


def refused_field(scheme: DestinationScheme, destination: object) -> str:
    with pytest.raises(InvalidInput) as refused:
        check_destination(scheme, {"destination": destination})
    return refused.value.field


@pytest.mark.parametrize(
    ("scheme", "destination"),
    [
        ("sepa", {"iban": IBAN}),
        ("sepa", {"iban": IBAN, "bic": "COBADEFFXXX"}),
        ("sepa", {"iban": "FR1420041010050500013M02606", "bic": "PSSTFRPP"}),
        ("us", {"routing_number": "021000021", "account_number": "123456789"}),
        ("any", {"account": "x"}),
    ],
)
def test_a_sound_destination_passes(scheme: DestinationScheme, destination: object) -> None:
    check_destination(scheme, {"destination": destination})


@pytest.mark.covers("E34")
@pytest.mark.parametrize(
    ("scheme", "destination", "field"),
    [
        ("any", None, ""),
        ("any", {}, ""),
        ("any", "DE89", ""),
        ("sepa", {}, ""),
        ("sepa", {"account": "1"}, ".iban"),
        ("sepa", {"iban": "DE88370400440532013000"}, ".iban"),
        ("sepa", {"iban": "DE89 3704 0044 0532 0130 00"}, ".iban"),
        ("sepa", {"iban": IBAN.lower()}, ".iban"),
        ("sepa", {"iban": IBAN[:-1]}, ".iban"),
        ("sepa", {"iban": "ZZ89370400440532013000"}, ".iban"),
        ("sepa", {"iban": 89370400440532013000}, ".iban"),
        ("sepa", {"iban": "BR1800360305000010009795493C1"}, ".iban"),
        ("sepa", {"iban": IBAN, "bic": "COBADEF"}, ".bic"),
        ("sepa", {"iban": IBAN, "bic": "COBAZZFFXXX"}, ".bic"),
        ("us", {"account_number": "1"}, ".routing_number"),
        ("us", {"routing_number": "021000022", "account_number": "1"}, ".routing_number"),
        ("us", {"routing_number": "000000000", "account_number": "1"}, ".routing_number"),
        ("us", {"routing_number": "02100002", "account_number": "1"}, ".routing_number"),
        ("us", {"routing_number": "021000021"}, ".account_number"),
        ("us", {"routing_number": "021000021", "account_number": "1" * 18}, ".account_number"),
        ("us", {"routing_number": "021000021", "account_number": "1 2"}, ".account_number"),
    ],
)
def test_a_wrong_destination_is_refused_with_its_field(
    scheme: DestinationScheme, destination: object, field: str
) -> None:
    assert refused_field(scheme, destination) == f"payload.destination{field}"
