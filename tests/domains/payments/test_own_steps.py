"""A step that a program replaces is used over REST and from Python."""

from pathlib import Path

import pytest

from penstock.api import create_app
from penstock.base.errors import InvalidInput
from penstock.cli.load import load_app
from penstock.domains.payments.schedule import Payments
from tests.api.scene import called, problem
from tests.domains.payments.own_steps import BLOCKED_IBAN, write_ours
from tests.domains.payments.scene import a_body, a_payment

BLOCKED = {"creditor": {"name": "Eve", "iban": BLOCKED_IBAN}}


async def test_rest_and_python_use_the_steps_of_the_app(
    dsn: str, *, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    app = load_app(write_ours(tmp_path))
    app.dsn = dsn

    async with app, called(app, create_app(app)) as callers:
        one = await callers.admin.post("/payments", json=a_body("p-1", **BLOCKED))
        batch = [a_body("p-2", **BLOCKED), a_body("p-3")]
        many = await callers.admin.post("/payments/batch", json=batch)
        with pytest.raises(InvalidInput, match="is blocked"):
            await app.api(Payments).schedule(a_payment("p-4", **BLOCKED))
        rows = await app.pool.fetch("SELECT payment_id FROM penstock.payment")

    problem(one, 400, "invalid-input")
    assert [each["outcome"] for each in many.json()] == ["invalid", "scheduled"]
    assert [row[0] for row in rows] == ["p-3"]
