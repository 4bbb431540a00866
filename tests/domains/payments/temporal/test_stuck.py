"""A payment whose workflow does not go on is seen, although its item is done."""

from datetime import UTC, datetime, timedelta

import pytest

from penstock.base.clock import FakeClock
from penstock.domains.payments.stuck import StuckPayments
from tests.domains.payments.scene import read_gauge
from tests.domains.payments.temporal.scene import TemporalScene

MINUTE = timedelta(minutes=1)


@pytest.fixture
def clock() -> FakeClock:
    """A clock a little ahead of the database's, by which payments are scheduled for now."""
    return FakeClock(datetime.now(UTC) + MINUTE)


async def test_a_payment_whose_workflow_was_terminated_is_counted(scene: TemporalScene) -> None:
    """Nothing executes it any more, and no lane shows it."""
    (payment_id,) = scene.ids(1)
    await scene.payments.schedule(payment_id)
    await scene.payments.run_payments()
    await scene.client.get_workflow_handle(f"exec-payment-{payment_id}").terminate()
    assert await stuck(scene, after=9 * MINUTE) == 0, "a workflow may take a while"

    assert await stuck(scene, after=11 * MINUTE) == 1
    assert await stuck(scene, after=11 * MINUTE) == 1, "counted once"


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
