"""Which types a payload may have: pydantic models too, and what is refused at registration."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from pydantic import BaseModel, ConfigDict, Field, computed_field

from penstock import Item, Money, Penstock
from penstock.base.errors import InvalidInput
from penstock.kernel.payload import check_type, decoder, encode
from penstock.testing import FakeClock, run_due
from tests.kernel.scene import NOON


class Line(BaseModel):
    model_config = ConfigDict(strict=True)

    sku: str
    amount: Decimal
    due_at: datetime | None = None


class Order(BaseModel):
    number: int = Field(alias="orderNumber")
    lines: list[Line] = []

    @computed_field
    @property
    def line_count(self) -> int:
        return len(self.lines)


class Holder(msgspec.Struct):
    orders: dict[str, Order]
    first: Line | None = None


class Plain:
    """A class that nothing can decode."""


@dataclass
class WithPlain:
    inner: list[Plain]


class Tree(msgspec.Struct):
    children: "list[Tree]" = []


LINE = Line(sku="a", amount=Decimal("0.10000000000000000001"), due_at=NOON)
ORDER = Order(orderNumber=7, lines=[LINE])


async def test_a_handler_gets_the_pydantic_model_that_was_enqueued(dsn: str) -> None:
    """It was accepted at registration, and every item was dead."""
    app = Penstock(dsn, domains=())
    seen: list[Order] = []

    @app.handler("orders")
    async def ship(item: Item[Order]) -> None:
        seen.append(item.payload)

    async with app:
        await app.enqueue("orders", ORDER)
        await app.enqueue("orders", {"orderNumber": 8, "unknown": 1})
        with pytest.raises(InvalidInput, match=r"payload\.lines\[0\]\.amount"):
            await app.enqueue("orders", {"orderNumber": 9, "lines": [{"sku": "a"}]})
        await run_due(app, FakeClock(datetime.now(UTC) + timedelta(seconds=1)))

    assert seen == [ORDER, Order(orderNumber=8)]


@pytest.mark.parametrize(
    ("wanted", "value"),
    [
        pytest.param(list[Order], [Order(orderNumber=1)], id="list"),
        pytest.param(Holder, Holder(orders={"a": Order(orderNumber=1)}), id="struct"),
        pytest.param(Order | None, ORDER, id="optional"),
    ],
)
def test_models_may_be_inside_other_types(wanted: Any, value: object) -> None:
    check_type(wanted)

    assert decoder(wanted).decode(encode(value, wanted)) == value


class Payment(BaseModel):
    model_config = ConfigDict(strict=True)

    amount: Money
    fee: Money | None = None


@pytest.mark.parametrize("text", ['{"amount": "12.50"}', '{"amount": 12, "fee": "0.10"}'])
def test_an_amount_in_a_model_stays_exact(text: str) -> None:
    """A model with such a field could not even be defined."""
    check_type(Payment)

    payment = decoder(Payment).decode(text)

    assert (type(payment.amount), payment.amount) in [
        (Money, Decimal("12.50")),
        (Money, Decimal(12)),
    ]
    assert decoder(Payment).decode(encode(payment, Payment)) == payment
    assert f'"amount":"{payment.amount}"' in encode(payment)


@pytest.mark.parametrize("amount", ["12.5", "true", '"much"', '"NaN"', "null"])
def test_an_amount_in_a_model_that_is_not_exact_is_refused(amount: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=r"\$\.amount"):
        decoder(Payment).decode(f'{{"amount": {amount}}}')


def test_a_model_with_an_amount_has_a_json_schema() -> None:
    schema = Payment.model_json_schema()

    assert schema["properties"]["amount"]["type"] == "string"


def test_a_refused_model_shows_the_field_and_never_the_value() -> None:
    with pytest.raises(InvalidInput) as refused:
        encode({"orderNumber": "4111-secret"}, Order)

    assert "payload.orderNumber" in str(refused.value)
    assert "4111" not in str(refused.value)


def test_a_number_that_json_lacks_is_refused_in_a_model() -> None:
    class Reading(BaseModel):
        value: float

    with pytest.raises(InvalidInput, match="nan"):
        encode(Reading(value=float("nan")))


@pytest.mark.parametrize("wanted", [Plain, WithPlain, dict[str, Plain], Plain | None], ids=str)
def test_a_type_that_nothing_decodes_is_refused_at_registration(wanted: Any) -> None:
    """Every item of the lane would be dead."""
    app = Penstock("postgresql://nowhere")

    async def handle(item: Any) -> None: ...

    handle.__annotations__["item"] = Item[wanted]

    with pytest.raises(InvalidInput, match="Plain"):
        app.handler("orders")(handle)


@pytest.mark.parametrize(
    "wanted", [Any, object, Tree, Money, dict[str, Money], int, Order], ids=str
)
def test_what_can_be_decoded_is_accepted(wanted: Any) -> None:
    check_type(wanted)
