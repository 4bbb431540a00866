"""Payments that do not go on are counted, also if no workflow and no item is left of them."""

from datetime import UTC, datetime, timedelta

from penstock.domains.payments.persist import look_up
from penstock.domains.payments.steps import STEPS
from penstock.domains.payments.stuck import StuckPayments
from tests.domains.payments.executing.scene import NOW, Scene
from tests.domains.payments.scene import a_payment, read_gauge

MINUTE = timedelta(minutes=1)


async def test_a_payment_that_was_dispatched_days_after_its_instant_is_counted(
    scene: Scene,
) -> None:
    """Its lane was paused over the weekend: what counts is when it was dispatched."""
    await scene.schedule("p-1")
    await scene.run_payments()
    await make_stuck(scene, due=timedelta(days=3))
    assert await stuck(scene, after=9 * MINUTE) == 0, "its workflow may take a while"

    assert await stuck(scene, after=11 * MINUTE) == 1
    assert await stuck(scene, after=11 * MINUTE) == 1, "counted once"


async def test_a_payment_that_was_dispatched_early_is_counted_once_it_was_due(
    scene: Scene,
) -> None:
    """Its workflow waits on Temporal until then, and for its jitter: nothing is wrong with it."""
    await scene.set_lane(jitter_window=5 * MINUTE)
    await scene.schedule("p-1")
    await scene.run_payments()
    await make_stuck(scene, due=-30 * MINUTE)

    assert await stuck(scene, after=44 * MINUTE) == 0

    assert await stuck(scene, after=46 * MINUTE) == 1


async def test_a_payment_that_was_never_enqueued_is_counted_once_it_is_due(scene: Scene) -> None:
    """Its first phase was terminated in the middle, and no lane has anything of it."""
    draft = STEPS.enrich(STEPS.validate(a_payment("p-1", **NOW)))
    async with scene.app.pool.acquire() as db:
        await STEPS.persist(db, [draft], (await look_up(db, [draft], None)).at)
    assert await stuck(scene, after=9 * MINUTE) == 0, "whoever has scheduled it may go on"

    assert await stuck(scene, after=11 * MINUTE) == 1
    await scene.client.post("/payments/p-1/cancel")
    assert await stuck(scene, after=11 * MINUTE) == 0


async def test_payments_that_wait_or_go_on_are_not_counted(scene: Scene) -> None:
    await scene.schedule("p-1")
    await scene.run_payments()
    await scene.schedule("p-2")

    assert await stuck(scene, after=11 * MINUTE) == 0


async def make_stuck(scene: Scene, *, due: timedelta) -> None:
    """Leave a dispatched payment as a workflow does that was terminated before its first step."""
    async with scene.app.pool.acquire() as db, db.transaction():
        # The status is guarded: what runs as a replica fires no trigger.
        await db.execute("SET LOCAL session_replication_role = replica")
        await db.execute(
            "UPDATE penstock.payment SET status = 'SCHEDULED', scheduled_at = now() - $1::interval",
            due,
        )


async def stuck(scene: Scene, *, after: timedelta) -> float:
    """Look as after a while, and return what GET /metrics shows then."""
    await StuckPayments(pool=scene.app.pool).look_once(now=datetime.now(UTC) + after)
    return await read_gauge(scene.app, "payments_stuck")
