"""What a handler's registration refuses: options that would end its worker or lose its items."""

from datetime import timedelta
from typing import Any

import pytest

from penstock import Dead, Done, Hold, Item, Penstock, Retry, Snooze
from penstock.base.errors import InvalidInput


async def pay(item: Item[Any]) -> None: ...


@pytest.mark.parametrize(
    ("options", "field"),
    [
        pytest.param({"timeout": 5}, "timeout", id="number"),
        pytest.param({"timeout": None}, "timeout", id="none"),
        pytest.param({"timeout": timedelta(0)}, "timeout", id="zero"),
        pytest.param({"when_unknown": "Hold"}, "when_unknown", id="name"),
        pytest.param({"when_unknown": Hold("lost")}, "when_unknown", id="outcome"),
        pytest.param({"when_unknown": Done}, "when_unknown", id="Done"),
        pytest.param({"when_unknown": Snooze}, "when_unknown", id="Snooze"),
        pytest.param({"when_unknown": lambda: Retry("again")}, "when_unknown", id="no-parameter"),
        pytest.param({"when_unknown": print}, "when_unknown", id="no-outcome"),
    ],
)
def test_an_option_that_no_attempt_could_use_is_refused_by_name(
    options: dict[str, Any], field: str
) -> None:
    """Done would lose a payment that failed; a number ended every claim with AttributeError."""
    with pytest.raises(InvalidInput, match=f"^{field}: must ") as refused:
        Penstock("postgresql://nowhere").handler("payments", **options)(pay)

    assert refused.value.field == field


@pytest.mark.parametrize(
    "when_unknown",
    [Retry, Hold, Dead, lambda reason: Retry(reason, after=timedelta(minutes=1))],
)
def test_an_unknown_result_may_be_repeated_held_or_dead(when_unknown: Any) -> None:
    app = Penstock("postgresql://nowhere")

    app.handler("payments", when_unknown=when_unknown)(pay)

    assert "payments" in app.kinds
