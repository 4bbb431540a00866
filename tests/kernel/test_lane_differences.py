"""A policy in the code that differs from the lane is shown, because it changes nothing."""

from datetime import timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs

from penstock import Item, Penstock
from penstock.base.errors import InvalidInput


def app_of(dsn: str, **policy: Any) -> Penstock:
    app = Penstock(dsn, domains=())

    @app.handler("orders", **policy)
    async def ship(item: Item[Any]) -> None: ...

    return app


async def lines_at_start(app: Penstock) -> list[Any]:
    with capture_logs() as lines:
        async with app:
            pass
    return [line for line in lines if line["event"] == "lane.differed"]


async def test_a_changed_decorator_is_logged_at_start(dsn: str) -> None:
    """A changed rate did nothing, and nothing said so."""
    first = await lines_at_start(app_of(dsn, rate=10, lease=timedelta(seconds=30)))

    changed = await lines_at_start(
        app_of(dsn, rate=20, lease=timedelta(seconds=30), ordering="per_key", backoff_multiplier=3)
    )

    assert first == []
    assert [(line["field"], line["declared"], line["stored"]) for line in changed] == [
        ("rate", 20, 10.0),
        ("ordering", "per_key", "none"),
        ("backoff_multiplier", 3, 2.0),
    ]
    assert {line["lane"] for line in changed} == {"orders"}


async def test_another_rule_for_lost_items_is_logged_as_a_warning(dsn: str) -> None:
    """The code says that a payment is held, and the lane repeats it."""
    await lines_at_start(app_of(dsn, rate=10))

    changed = await lines_at_start(app_of(dsn, rate=20, on_lost="hold"))

    assert {line["field"]: line["log_level"] for line in changed} == {
        "rate": "info",
        "on_lost": "warning",
    }


async def test_equal_values_of_another_type_are_no_difference(dsn: str) -> None:
    declared: dict[str, Any] = {"rate": 10, "burst": 5, "lease": timedelta(minutes=1)}
    await lines_at_start(app_of(dsn, **declared))

    assert await lines_at_start(app_of(dsn, **declared)) == []


async def test_an_unknown_field_is_refused_also_if_the_lane_exists(dsn: str) -> None:
    await lines_at_start(app_of(dsn))

    with pytest.raises(InvalidInput, match="ratee"):
        await lines_at_start(app_of(dsn, ratee=10))
