"""The client as domains ask for it: routes from URLs, header lines ready-made, errors of ours."""

import resource
from collections.abc import Coroutine, Sequence
from typing import Any

from penstock.base.errors import InvalidInput
from penstock.integrations.http_client.client import Client
from penstock.integrations.http_client.egress import Egress, EgressRefused
from penstock.integrations.http_client.limits import Limits
from penstock.integrations.http_client.response import Response
from penstock.integrations.http_client.route import BadHeader, Route, prepare_route
from penstock.integrations.http_client.target import BadTarget, parse_target

# Calls that wait for slow receivers must not keep others from theirs, so there are to be more
# connections than lanes run calls at once.
CONNECTIONS_MAX = 4_000
_ANYWHERE = parse_target("https://example.com/")


class Poster:
    """Posts to where `egress` allows."""

    def __init__(self, egress: Egress) -> None:
        self._egress = egress
        self._client = Client(egress, limits=_limits())

    def prepare(self, url: str, headers: Sequence[tuple[str, str]]) -> Route:
        """Return a route; raises InvalidInput for a URL or a header that cannot be.

        Where a name leads is only known when a connection is made, and checked then.
        """
        try:
            target = parse_target(url, ports=self._egress.ports)
            if target.address is not None:
                self._egress.check(target.address)
            return prepare_route(target, headers)
        except (BadTarget, EgressRefused) as refused:
            raise InvalidInput("url", str(refused)) from refused
        except BadHeader as refused:
            raise InvalidInput(f"headers.{refused.name[:100]}", refused.reason) from refused

    def check_headers(self, headers: Sequence[tuple[str, str]]) -> None:
        """Raise InvalidInput for a header that cannot be."""
        try:
            prepare_route(_ANYWHERE, headers)
        except BadHeader as refused:
            raise InvalidInput(f"headers.{refused.name[:100]}", refused.reason) from refused

    def post(
        self, route: Route, lines: bytes, body: bytes, *, timeout: float
    ) -> Coroutine[Any, Any, Response]:
        """Send, with these header lines besides the route's; raises CallFailed."""
        return self._client.post(route, lines, body, timeout=timeout)

    async def close(self) -> None:
        """Close all connections."""
        await self._client.close()


def _limits() -> Limits:
    """Return what this process can bear; a quarter of its file descriptors is for other things."""
    open_files_max, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    connections_max = max(64, min(CONNECTIONS_MAX, open_files_max * 3 // 4))
    return Limits(connections_max=connections_max, idle_per_origin_max=connections_max)
