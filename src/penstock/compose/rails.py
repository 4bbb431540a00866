"""Connect the rails of the outbox to the HTTP client, behind the egress rules."""

from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from ipaddress import ip_network
from typing import Any, TypeAlias

from penstock.compose.egress import make_client
from penstock.contract import Resources
from penstock.domains.outbox.rails.http_json import (
    Headers,
    HttpAnswer,
    HttpRequest,
    make_rail,
    parse_config,
)
from penstock.domains.outbox.rails.rail import Rail
from penstock.domains.outbox.rails.registry import HTTP_JSON, SIMULATOR, CachedRails
from penstock.domains.outbox.rails.simulator.adapter import make_simulator_rail
from penstock.domains.outbox.rails.simulator.service import SimulatorService
from penstock.integrations.http_client import Client, Egress, Route, process_limits

Closes: TypeAlias = list[Callable[[], Awaitable[None]]]

LOOPBACK = ip_network("127.0.0.0/8")
ROUTES_MAX = 1_024  # A rail has one URL to send to; those of queries differ.


class ClientExchange:
    """Sends requests of rails with the HTTP client."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._route: Callable[[str], Route] = lru_cache(maxsize=ROUTES_MAX)(client.prepare)

    def check_url(self, url: str) -> None:
        """Raise InvalidInput for a URL that this process may not reach."""
        self._client.check_url(url)

    def check_headers(self, headers: Headers) -> None:
        """Raise InvalidInput for a header that cannot be sent."""
        self._client.check_headers(headers)

    async def exchange(self, request: HttpRequest, *, timeout: float) -> HttpAnswer:
        """Send once, and return the answer."""
        route = self._route(request.url)
        if request.method == "GET":
            answer = await self._client.get(route, request.headers, timeout=timeout)
        else:
            answer = await self._client.post(
                route,
                request.headers,
                request.body,
                timeout=timeout,
                not_after=request.not_after,
            )
        return HttpAnswer(status=answer.status, body=answer.body, is_truncated=answer.is_truncated)


def make_rails(resources: Resources, simulator: SimulatorService, closes: Closes) -> CachedRails:
    """Return the rails of this process; what has to be closed is added to `closes`."""
    client = make_client()
    # The simulator is on loopback, which the egress rules refuse to everything else.
    local = Client(Egress((LOOPBACK,)), limits=process_limits())
    closes += [client.close, local.close]
    outside, inside = ClientExchange(client), ClientExchange(local)

    def http_json(config: Mapping[str, Any], secret: str | None, _resources: Resources) -> Rail:
        return make_rail(parse_config(config), secret, exchange=outside)

    def simulated(config: Mapping[str, Any], _secret: str | None, _resources: Resources) -> Rail:
        return make_simulator_rail(config, exchange=inside)

    return CachedRails(
        resources=resources,
        adapters={HTTP_JSON: http_json, SIMULATOR: simulated},
        may_simulate=simulator.may_simulate,
    )
