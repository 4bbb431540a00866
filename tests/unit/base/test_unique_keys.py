"""JSON with a key that is given twice is refused, whatever hides it."""

import pytest

from penstock.base.errors import InvalidInput
from penstock.base.unique_keys import check_unique_keys


@pytest.mark.parametrize(
    "document",
    [
        '{"amount": "1.00", "amount": "9000.00"}',
        '{"payload": {"amount": "1.00", "amount": "1.00"}}',
        '[{"a": 1}, {"amount": 1, "b": {}, "amount": 2}]',
        r'{"amount": "1.00", "amo\u0075nt": "9000.00"}',
    ],
    ids=["at the top", "with the same value", "in a list", "with an escape"],
)
def test_a_key_that_is_given_twice_is_refused(document: str) -> None:
    """One reader of it pays the first amount, the next one the last."""
    with pytest.raises(InvalidInput) as refused:
        check_unique_keys(document.encode())

    assert refused.value.field == "amount"


@pytest.mark.parametrize(
    "document",
    ['{"a": {"amount": 1}, "b": {"amount": 1}}', "[]", '"amount"', f'{{"a": {"9" * 5_000}}}'],
    ids=["two objects", "no object", "a text", "a long number"],
)
def test_other_documents_are_left_alone(document: str) -> None:
    check_unique_keys(document)
