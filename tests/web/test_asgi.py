"""`web` serves the endpoints that it is given, and has none of its own."""

from httpx import ASGITransport

from penstock import Penstock, web
from penstock.contract.http import Call, NoParameters, Reply, endpoint
from tests.api.scene import caller, problem


async def greet(_call: Call[NoParameters, None]) -> Reply[dict[str, str]]:
    return Reply({"greeting": "hello"}, 203, headers={"X-Greeting": "yes"})


async def test_only_the_given_endpoints_are_served() -> None:
    """The API and the dashboard stand on it side by side, and neither needs the other."""
    greeting = endpoint("GET", "/hi", greet, scope=None, statuses=(203,), summary="Greet")

    async with caller(ASGITransport(web.create_app(Penstock(), [greeting])), None) as client:
        given = await client.get("/hi")
        health = await client.get("/health")

    assert (given.status_code, given.json()) == (203, {"greeting": "hello"})
    assert given.headers["X-Greeting"] == "yes"
    problem(health, 404, "not-found")
