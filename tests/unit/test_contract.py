"""A domain reaches the app through the contract alone."""

from dataclasses import replace

import pytest

from penstock.app import Penstock
from penstock.base.errors import InvalidInput
from penstock.contract import Domain, Kind, OwnedLane, Resources, Runtime
from penstock.contract.errors import BadDomain
from penstock.kernel.enqueue import enqueue
from penstock.kernel.errors import LaneIsOwned
from penstock.kernel.item import Item, NewItem
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
        lane = OwnedLane(
            name="greetings",
            policy={"batch_size": 7},
            guards={"cancel": "use greetings recall"},
            allows=["set:on_lost"],
        )
        return Domain(name="greetings", build=self.build, lanes=[lane])


async def test_an_added_domain_brings_its_handlers_and_their_policy(
    dsn: str, clock: FakeClock
) -> None:
    """Adding a domain must need nothing but one line in the composition root."""
    greetings = Greetings()
    app = Penstock(dsn)
    app.add_domain(greetings.domain())

    async with app:
        async with app.pool.acquire() as db:
            item = NewItem(payload="hello", due_at=clock.now())
            await enqueue(db, "greetings", item, owner="greetings")
        await run_due(app, clock)
        lane = await read_lane(app.pool, "greetings")

    assert greetings.greeted == ["hello"]
    assert lane.batch_size == 7


async def test_a_declared_lane_belongs_to_its_domain(dsn: str) -> None:
    """What the domain does not allow goes through its own verbs."""
    app = Penstock(dsn)
    app.add_domain(Greetings().domain())

    async with app:
        lane = await read_lane(app.pool, "greetings")
        with pytest.raises(LaneIsOwned, match="only the domain itself enqueues its items"):
            await app.enqueue("greetings", "hello")

    assert lane.owner == "greetings"
    assert lane.guards.keys() == {"enqueue", "cancel", "set:ordering", "set:on_dead_head"}


async def test_a_lane_that_a_domain_does_not_declare_has_no_owner(dsn: str) -> None:
    app = Penstock(dsn, domains=[replace(Greetings().domain(), lanes=())])

    async with app:
        accepted = await app.enqueue("greetings", "hello")
        lane = await read_lane(app.pool, "greetings")

    assert accepted.is_new
    assert (lane.owner, lane.guards) == (None, {})


async def test_a_domain_of_another_package_cannot_have_a_lane_with_a_reserved_name(
    dsn: str,
) -> None:
    lane = OwnedLane(name="penstock.greetings")
    app = Penstock(dsn, domains=[replace(Greetings().domain(), lanes=[lane])])

    with pytest.raises(BadDomain, match=r"'penstock\.greetings', whose name must not begin with"):
        await app.open()

    await app.close()


def test_a_handler_of_a_lane_with_a_reserved_name_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"must not begin with 'penstock\.'"):
        Penstock().handler("penstock.webhooks")


async def test_a_lane_with_a_handler_of_the_app_cannot_be_taken_by_a_domain(dsn: str) -> None:
    """It would be undefined which of two handlers runs."""
    app = Penstock(dsn)
    app.handler("greetings")(Greetings().greet)
    app.add_domain(Greetings().domain())

    with pytest.raises(InvalidInput, match="greetings"):
        await app.open()

    await app.close()


async def test_what_a_domain_opened_is_closed_before_what_it_was_built_on(dsn: str) -> None:
    """What was opened last may use what was opened first."""
    closed: list[str] = []

    async def close_own() -> None:
        closed.append("own")

    async def close_client() -> None:
        closed.append("client")

    def build(_: Resources) -> Runtime:
        return Runtime(close=[close_own]).built_on([close_client])

    app = Penstock(dsn, domains=[Domain(name="greetings", build=build)])
    await app.open()
    await app.close()

    assert closed == ["own", "client"]
