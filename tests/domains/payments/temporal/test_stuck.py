"""A payment whose workflow does not go on is seen, although its item is done."""

from collections.abc import Generator
from datetime import UTC, datetime, timedelta

import pytest

from penstock.base.clock import FakeClock
from penstock.base.errors import InvalidInput
from penstock.base.settings import read_once
from penstock.compose.temporal_workers import start_execution
from penstock.domains.payments.errors import UnknownPayment
from penstock.domains.payments.stuck import StuckPayments
from tests.domains.outbox.sending.ledger import Ledger
from tests.domains.payments.scene import read_gauge
from tests.domains.payments.temporal.scene import TemporalScene
from tests.temporal_server import TemporalServer

MINUTE = timedelta(minutes=1)


@pytest.fixture
def clock() -> FakeClock:
    """A clock a little ahead of the database's, by which payments are scheduled for now."""
    return FakeClock(datetime.now(UTC) + MINUTE)


@pytest.fixture
def configured(temporal: TemporalServer, monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    """The environment names the test's server; a process reads it once."""
    monkeypatch.setenv("TEMPORAL_TARGET", temporal.target)
    read_once.cache_clear()
    yield
    read_once.cache_clear()


async def test_a_payment_whose_workflow_was_terminated_is_counted(scene: TemporalScene) -> None:
    """Nothing executes it any more, and no lane shows it."""
    (payment_id,) = scene.ids(1)
    await scene.payments.schedule(payment_id)
    await scene.payments.run_payments()
    await scene.client.get_workflow_handle(f"exec-payment-{payment_id}").terminate()
    assert await stuck(scene, after=9 * MINUTE) == 0, "a workflow may take a while"

    assert await stuck(scene, after=11 * MINUTE) == 1
    assert await stuck(scene, after=11 * MINUTE) == 1, "counted once"


@pytest.mark.usefixtures("configured")
async def test_a_payment_whose_workflow_was_terminated_is_started_again(
    scene: TemporalScene, ledger: Ledger
) -> None:
    """As the runbook says: a workflow that is started by hand may have other arguments."""
    (payment_id,) = scene.ids(1)
    await scene.payments.schedule(payment_id)
    resources = scene.payments.app.resources
    with pytest.raises(InvalidInput, match="waits in its lane"):
        await start_execution(resources, payment_id)
    item_id = (await scene.payments.payment(payment_id))["item_id"]
    for verb, reason in (("hold", "item release"), ("release", "waits in its lane")):
        await scene.payments.client.post(f"/items/{item_id}/{verb}", json={"reason": "test"})
        with pytest.raises(InvalidInput, match=reason):
            await start_execution(resources, payment_id)
    await scene.payments.run_payments()
    running = await start_execution(resources, payment_id)
    await scene.client.get_workflow_handle(f"exec-payment-{payment_id}").terminate()

    started = await start_execution(resources, payment_id)
    async with scene.workers("exec"):
        assert await scene.result(payment_id) == "PROCESSING"

    assert (running["change"], started["change"]) == ("unchanged", "started")
    await scene.payments.run()
    assert ledger.bookings == [payment_id]
    with pytest.raises(InvalidInput, match="SETTLED"):
        await start_execution(resources, payment_id)
    with pytest.raises(UnknownPayment):
        await start_execution(resources, "nothing")


async def test_a_payment_that_goes_on_is_not_counted_any_more(scene: TemporalScene) -> None:
    (payment_id,) = scene.ids(1)
    await scene.payments.schedule(payment_id)
    await scene.payments.run_payments()
    assert await stuck(scene, after=11 * MINUTE) == 1

    async with scene.workers("exec"):
        await scene.result(payment_id)

    assert await stuck(scene, after=11 * MINUTE) == 0


async def test_a_payment_that_waits_in_its_lane_is_not_stuck(scene: TemporalScene) -> None:
    """It may be late, which another alert says."""
    (payment_id,) = scene.ids(1)
    await scene.payments.schedule(payment_id)

    assert await stuck(scene, after=11 * MINUTE) == 0


async def stuck(scene: TemporalScene, *, after: timedelta) -> float:
    """Look at all payments as after a while, and return what GET /metrics shows then."""
    app = scene.payments.app
    latest: datetime = await app.pool.fetchval(
        "SELECT greatest(now(), max(settled_at)) FROM penstock.attempt"
    )
    await StuckPayments(pool=app.pool).look_once(now=latest + after)
    return await read_gauge(app, "payments_stuck")
