"""httpcore on asyncio, doing nothing but POST, to an address that is checked and pinned.

Its network backend is replaced, so that a connection goes to the checked address whatever the
URL's host resolves to. That is the least that a client for users' URLs needs.
"""

import ipaddress
import socket
from collections.abc import Iterable

import httpcore
import uvloop

from bench.peers.posting import asked, post_for


class PinnedBackend(httpcore.AsyncNetworkBackend):
    """Resolves and checks the host once, and connects to that address."""

    def __init__(self) -> None:
        self._backend = httpcore.AnyIOBackend()
        self._addresses: dict[str, str] = {}

    async def connect_tcp(  # noqa: PLR0917  As httpcore calls it.
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect to the checked address of the host."""
        return await self._backend.connect_tcp(
            self._checked(host),
            port,
            timeout=timeout,
            local_address=local_address,
            socket_options=socket_options,
        )

    def _checked(self, host: str) -> str:
        if host not in self._addresses:
            address = str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0])
            # The bench posts to loopback, so this is the network that is allowed.
            if not ipaddress.ip_address(address).is_loopback:
                raise PermissionError(address)
            self._addresses[host] = address
        return self._addresses[host]


async def main() -> None:
    wanted = asked()
    headers = [("Content-Type", "application/json")]
    async with httpcore.AsyncConnectionPool(
        max_connections=wanted.connections,
        max_keepalive_connections=wanted.connections,
        network_backend=PinnedBackend(),
    ) as pool:

        async def post() -> int:
            response = await pool.request("POST", wanted.url, headers=headers, content=wanted.body)
            return response.status

        await post_for(wanted, post)


if __name__ == "__main__":
    uvloop.run(main())
