"""httpcore without its connection pool, doing nothing but POST, to a pinned address.

The pool of 1.0.9 scans all connections for each connection whenever a request begins or ends,
which hides what the rest of httpcore costs. Here a plain list of idle connections replaces it.
"""

import httpcore
import uvloop

from bench.peers.httpcore import PinnedBackend
from bench.peers.posting import asked, post_for


async def main() -> None:
    wanted = asked()
    headers = [("Content-Type", "application/json")]
    origin = httpcore.URL(wanted.url).origin
    backend = PinnedBackend()
    idle = [
        httpcore.AsyncHTTPConnection(origin, network_backend=backend)
        for _ in range(wanted.connections)
    ]

    async def post() -> int:
        connection = idle.pop()
        response = await connection.request(
            "POST", wanted.url, headers=headers, content=wanted.body
        )
        idle.append(connection)
        return response.status

    await post_for(wanted, post)
    for connection in idle:
        await connection.aclose()


if __name__ == "__main__":
    uvloop.run(main())
