"""A domain reaches the app through the contract alone."""

import pytest

from penstock.app import Penstock
from penstock.base.errors import InvalidInput
from penstock.contract import Domain, Kind, Resources, Runtime
from penstock.kernel.item import Item
from penstock.kernel.lane import read_lane
from penstock.testing import FakeClock, run_due


class Greetings:
    """A domain as it should be: a callable with its dependencies as fields."""

    def __init__(self) -> None:
        self.greeted: list[str] = []

    async def greet(self, item: Item[str]) -> None:
        self.greeted.append(item.payload)

    def build(self, resources: Resources) -> Runtime:
        assert resources.pool.get_size() > 0
        return Runtime(kinds=[Kind(lane="greetings", payload_type=str, handle=self.greet)])

    def domain(self) -> Domain:
        return Domain(name="greetings", build=self.build, policies={"greetings": {"batch_size": 7}})


async def test_an_added_domain_brings_its_handlers_and_their_policy(
    dsn: str, clock: FakeClock
) -> None:
    """Adding a domain must need nothing but one line in the composition root."""
    greetings = Greetings()
    app = Penstock(dsn)
    app.add_domain(greetings.domain())

    async with app:
        await app.enqueue("greetings", "hello", due_at=clock.now())
        await run_due(app, clock)
        lane = await read_lane(app.pool, "greetings")

    assert greetings.greeted == ["hello"]
    assert lane.batch_size == 7


async def test_a_lane_with_a_handler_of_the_app_cannot_be_taken_by_a_domain(dsn: str) -> None:
    """It would be undefined which of two handlers runs."""
    app = Penstock(dsn)
    app.handler("greetings")(Greetings().greet)
    app.add_domain(Greetings().domain())

    with pytest.raises(InvalidInput, match="greetings"):
        await app.open()

    await app.close()
