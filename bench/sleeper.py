"""A payment as a sleeping workflow."""

from temporalio import workflow

SLEEPER = "Sleeper"


@workflow.defn(name=SLEEPER, sandboxed=False)  # A sandbox for each would take most of the time.
class Sleeper:
    """Waits until its payment is due."""

    @workflow.run
    async def run(self, seconds: float) -> None:
        await workflow.sleep(seconds)
