"""Operators set limits and rules over REST; each change is checked when it is written."""

from typing import Any

import msgspec
import pytest
from httpx import Response

from penstock.domains.payments.batcher import PaymentBatcher
from penstock.domains.payments.control.http import endpoints
from penstock.domains.payments.control.type_rules import check_calendars
from penstock.domains.payments.errors import InvalidCalendar, PaymentRefused
from penstock.domains.payments.messages import accept_messages
from tests.api.scene import problem
from tests.domains.payments.scene import Json, Scene, a_body, a_payment
from tests.domains.payments.test_rules import calendar

WEEKDAYS: Json = {
    "timeZone": "Europe/Paris",
    "hours": [{"days": ["mon", "tue", "wed", "thu", "fri"], "opens": "09:00", "closes": "18:00"}],
}


async def put_limit(scene: Scene, **fields: Any) -> Response:
    return await scene.client.put("/payment-limits", json={"currency": "EUR"} | fields)


async def put_rule(scene: Scene, **fields: Any) -> Response:
    return await scene.client.put("/payment-rules", json={"item_type": "PAYMENT"} | fields)


async def audited(scene: Scene) -> list[tuple[str, str, Any, Any]]:
    rows = await scene.app.pool.fetch(
        "SELECT action, subject, before, after FROM penstock.audit"
        " WHERE action LIKE 'payment%' ORDER BY audit_id"
    )
    return [
        (row["action"], row["subject"], *(_decoded(row[name]) for name in ("before", "after")))
        for row in rows
    ]


def _decoded(text: str | None) -> Any:
    return None if text is None else msgspec.json.decode(text)


# --------------------------------------------------------------------------------------- limits


async def test_a_limit_applies_to_the_next_payment_and_is_audited(scene: Scene) -> None:
    made = await put_limit(scene, amount_max="10.00")
    with pytest.raises(PaymentRefused, match=r"over 10\.00 EUR"):
        await scene.payments.schedule(a_payment())
    await put_limit(scene, participant_id="ada", amount_max="50000", day_amount_max="0.50")
    listed = await scene.client.get("/payment-limits")
    removed = await scene.client.delete("/payment-limits/EUR", params={"participant_id": "ada"})
    await put_limit(scene, amount_max="12.50")

    assert made.json() == {
        "currency": "EUR", "participant_id": None, "amount_max": "10.00", "day_amount_max": None
    }  # fmt: skip
    assert [(each["participant_id"], each["amount_max"]) for each in listed.json()["limits"]] == [
        (None, "10.00"),
        ("ada", "50000"),
    ]
    assert removed.status_code == 204
    assert (await scene.payments.schedule(a_payment())).is_new
    own = {"amount_max": "50000", "day_amount_max": "0.50"}
    assert await audited(scene) == [
        ("payment_limit.changed", "* EUR", None, {"amount_max": "10.00"}),
        ("payment_limit.changed", "ada EUR", None, own),
        ("payment_limit.removed", "ada EUR", own, None),
        ("payment_limit.changed", "* EUR", {"amount_max": "10.00"}, {"amount_max": "12.50"}),
    ]


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"amount_max": "-1"},
        {"amount_max": 10},
        {"amount_max": "1", "currency": "EUX"},
        {"amount_max": "100.000"},
        {"amount_max": "1", "participant_id": ""},
        {"amount_max": "1", "participant_id": "a\x00"},
    ],
    ids=str,
)
async def test_an_invalid_limit_is_refused(scene: Scene, fields: Json) -> None:
    """Without a number it would say nothing; that it removes one could be a mistake."""
    problem(await put_limit(scene, **fields), 400, "invalid-input")

    assert await audited(scene) == []


async def test_what_is_not_there_cannot_be_removed(scene: Scene) -> None:
    limit = await scene.client.delete("/payment-limits/EUR")
    rule = await scene.client.delete("/payment-rules/PAYMENT")

    problem(limit, 404, "unknown-payment-limit")
    problem(rule, 404, "unknown-payment-rule")


def test_only_an_administrator_changes_rules() -> None:
    """Who may schedule payments must not raise the limit of them."""
    scopes = {(each.method, each.scope) for each in endpoints()}

    assert scopes == {("GET", "read"), ("PUT", "admin"), ("DELETE", "admin")}


# ---------------------------------------------------------------------------------------- rules


async def test_the_rule_of_an_item_type_is_set_shown_and_removed(scene: Scene) -> None:
    made = await put_rule(scene, refuses_duplicates=True, calendar=WEEKDAYS)
    first = await scene.payments.schedule(a_payment("p-1", execute_at="2031-02-01T16:00:00Z"))
    with pytest.raises(PaymentRefused, match="same content"):
        await scene.payments.schedule(a_payment("p-2", execute_at="2031-02-01T16:00:00Z"))
    listed = (await scene.client.get("/payment-rules")).json()["rules"]
    removed = await scene.client.delete("/payment-rules/PAYMENT")
    after = await scene.payments.schedule(a_payment("p-2", execute_at="2031-02-01T16:00:00Z"))

    assert made.status_code == 200, made.text
    assert first.scheduled_at is not None
    assert first.scheduled_at.isoformat() == "2031-02-03T08:00:00+00:00"
    assert listed == [made.json()]
    assert (listed[0]["refuses_duplicates"], listed[0]["calendar"]["timeZone"]) == (
        True, "Europe/Paris"
    )  # fmt: skip
    assert removed.status_code == 204
    assert after.scheduled_at is not None
    assert after.scheduled_at.isoformat() == "2031-02-01T16:00:00+00:00"
    assert [(action, subject) for action, subject, _, _ in await audited(scene)] == [
        ("payment_rule.changed", "PAYMENT"), ("payment_rule.removed", "PAYMENT")
    ]  # fmt: skip


async def test_a_rule_is_for_an_item_type_that_exists(scene: Scene) -> None:
    problem(await put_rule(scene, item_type="INVOICE"), 404, "unknown-item-type")


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"timeZone": "Mars/Olympus"}, "calendar.timeZone"),
        ({"holidays": ["XX-NOWHERE"]}, "calendar.holidays[0]"),
        ({"cutOff": "25:00"}, "calendar.cutOff"),
        ({"cutOff": "08:00"}, "calendar.cutOff"),
        ({"cutOffPolicy": "reject"}, "calendar.cutOffPolicy"),
        ({"hours": [{"days": [], "opens": "09:00", "closes": "18:00"}]}, "calendar.hours[0].days"),
    ],
    ids=str,
)
async def test_an_invalid_calendar_is_refused_when_it_is_written(
    scene: Scene, change: Json, field: str
) -> None:
    """Not when the first payment of the next day needs it."""
    refused = await put_rule(scene, calendar=WEEKDAYS | change)

    assert problem(refused, 400, "invalid-input")["field"] == field
    assert (await scene.payments.schedule(a_payment())).is_new


# ------------------------------------------------------------------ calendars written with SQL


@pytest.mark.parametrize(
    ("change", "field"),
    [({"timeZone": "Mars/Olympus"}, "calendar.timeZone"), ({"cutOf": "16:00"}, "calendar")],
    ids=str,
)
async def test_a_payment_names_the_fault_of_a_calendar_written_with_sql(
    scene: Scene, change: Json, field: str
) -> None:
    await calendar(scene, **change)

    with pytest.raises(InvalidCalendar) as refused:
        await scene.payments.schedule(a_payment())
    answer = problem(await scene.post(), 503, "invalid-calendar")

    assert (refused.value.item_type, refused.value.field) == ("PAYMENT", field)
    assert answer["item_type"] == "PAYMENT"
    assert await scene.rows() == []
    assert (await put_rule(scene, calendar=WEEKDAYS)).status_code == 200
    assert (await scene.post()).status_code == 202


async def test_messages_wait_until_the_calendar_is_corrected(scene: Scene) -> None:
    """In the dead topic a valid payment would be lost to a mistake in a row."""
    await calendar(scene, timeZone="Mars/Olympus")
    message = msgspec.json.encode(a_body())

    with pytest.raises(InvalidCalendar):
        await accept_messages(PaymentBatcher(scene.payments), [(message, "payments.requests-0@1")])


async def test_doctor_names_calendars_that_no_payment_can_use(scene: Scene) -> None:
    none = await check_calendars(scene.app.resources)
    await calendar(scene, timeZone="Mars/Olympus")
    fault = await check_calendars(scene.app.resources)
    await put_rule(scene, calendar=WEEKDAYS)
    sound = await check_calendars(scene.app.resources)

    assert (none.verdict, sound.verdict, sound.detail) == ("ok", "ok", "PAYMENT")
    assert fault.verdict == "fail"
    assert "PAYMENT: calendar.timeZone: 'Mars/Olympus' is not" in fault.detail
