"""The whole kernel against a pure model of it, over random sequences of calls."""

import asyncio
import os
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from penstock.postgres.pool import connect
from tests.model.machine import KernelMachine, World

# The same examples each time, so that a build does not fail by chance. To search further, say how
# many; then they are new ones each time, and a failure prints how to repeat it.
EXAMPLES = os.environ.get("PENSTOCK_MODEL_EXAMPLES")
STEPS = 40
# A failure is first of all to be seen soon; to make it short takes minutes.
PHASES = [Phase.generate] if EXAMPLES is None else [Phase.generate, Phase.shrink]


@pytest.mark.timeout(600)
@pytest.mark.covers("E29", "E45")
def test_the_kernel_does_what_its_model_says(dsn: str) -> None:
    """Claims, late results, rescues, cancels, replays, lines of keys: in any order, at any time."""
    with asyncio.Runner() as runner:
        world = World(runner, runner.run(connect(dsn)), runner.run(connect(dsn)))

        for session in (world.db, world.producer):
            # The two would wait for each other only if a line is not taken when it should be.
            runner.run(session.execute("SET lock_timeout = '2s'"))

        run_state_machine_as_test(
            cast("Any", lambda: KernelMachine(world)),
            settings=settings(
                max_examples=int(EXAMPLES or 150),
                stateful_step_count=STEPS,
                derandomize=EXAMPLES is None,
                database=None,
                deadline=None,
                print_blob=True,
                phases=PHASES,
                suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
            ),
        )

        runner.run(world.db.close())
        runner.run(world.producer.close())
