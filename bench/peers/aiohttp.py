"""aiohttp on uvloop, doing nothing but POST."""

import aiohttp
import uvloop

from bench.peers.posting import asked, post_for


async def main() -> None:
    wanted = asked()
    connector = aiohttp.TCPConnector(limit=wanted.connections)
    headers = {"Content-Type": "application/json"}
    async with aiohttp.ClientSession(connector=connector, headers=headers) as session:

        async def post() -> int:
            async with session.post(wanted.url, data=wanted.body) as response:
                await response.read()
                return response.status

        await post_for(wanted, post)


if __name__ == "__main__":
    uvloop.run(main())
