"""An address to which mail would refuse to send is refused when the payment is scheduled."""

import json
import sys
from typing import Any

import msgspec
import pytest

from penstock.base.errors import InvalidInput
from penstock.contract.ndjson import NDJSON
from penstock.domains.payments.batcher import PaymentBatcher
from penstock.domains.payments.messages import accept_messages
from tests.api.scene import problem
from tests.domains.payments.scene import Scene, a_body, a_payment, opened_payments

REFUSED = [
    "a@b",
    ".a@b.example",
    "a..b@c.example",
    "a@[127.0.0.1]",
    "a@xn--.example",
    "a@-b.example",
]
ACCEPTED = ["ada+rent@example.org", "ada@bücher.example", "ада@example.org"]

BAD = {"notify": {"mail": "a@b"}}


@pytest.mark.parametrize("address", REFUSED)
async def test_an_address_that_mail_refuses_is_refused_with_400(scene: Scene, address: str) -> None:
    """The payment would be executed, and its mails be lost."""
    answer = await scene.post(notify={"mail": address})

    detail: str = problem(answer, 400, "invalid-input")["detail"]
    assert detail.startswith("notify.mail: is not a valid address")
    assert await scene.rows() == []


@pytest.mark.parametrize("address", ACCEPTED)
async def test_an_address_that_mail_takes_is_stored_as_it_is_given(
    scene: Scene, address: str
) -> None:
    answer = await scene.post(notify={"mail": address})

    assert answer.status_code == 202, answer.text
    (row,) = await scene.rows()
    assert json.loads(row["notify"]) == {"mail": address}


async def test_one_such_address_in_a_batch_or_a_stream_costs_no_other_payment(scene: Scene) -> None:
    bodies = [a_body("p-1"), a_body("p-2", **BAD), a_body("p-3")]
    lines = "\n".join(json.dumps(each | {"payment_id": f"s-{n}"}) for n, each in enumerate(bodies))

    batch = await scene.client.post("/payments/batch", json=bodies)
    stream = await scene.client.post(
        "/payments/stream", content=lines, headers={"Content-Type": NDJSON}
    )

    streamed = [msgspec.json.decode(line) for line in stream.content.splitlines()]
    for results in (batch.json(), streamed):
        assert [each["outcome"] for each in results] == ["scheduled", "invalid", "scheduled"]
        assert results[1]["detail"].startswith("notify.mail: ")
    assert [row["payment_id"] for row in await scene.rows()] == ["p-1", "p-3", "s-0", "s-2"]


async def test_python_and_kafka_refuse_the_same_addresses(scene: Scene) -> None:
    messages = [msgspec.json.encode(a_body("p-1", **BAD)), msgspec.json.encode(a_body("p-2"))]

    with pytest.raises(InvalidInput, match=r"^notify\.mail: "):
        await scene.payments.schedule(a_payment("p-3", **BAD))
    reasons = await accept_messages(
        PaymentBatcher(scene.payments), [(each, f"kafka-{n}") for n, each in enumerate(messages)]
    )

    assert (str(reasons[0]).partition(" ")[0], reasons[1]) == ("notify.mail:", None)
    assert [row["payment_id"] for row in await scene.rows()] == ["p-2"]


async def test_without_the_extra_only_what_is_no_address_at_all_is_refused(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Payments do not need mail: a process without it schedules as before."""
    packages: dict[str, Any] = {"aiosmtplib": None, "email_validator": None}
    for name, missing in packages.items():
        monkeypatch.setitem(sys.modules, name, missing)

    async with opened_payments(dsn) as scene:
        scheduled = await scene.post("p-1", **BAD)
        refused = await scene.post("p-2", notify={"mail": "ada"})

    assert scheduled.status_code == 202, scheduled.text
    problem(refused, 400, "invalid-input")
