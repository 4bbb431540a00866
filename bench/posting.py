"""Our HTTP client alone, doing nothing but POST: no queue, no guards, no signature."""

import os
import sys
from ipaddress import ip_network
from typing import Final

import uvloop

from bench.environment import ROOT, Launch
from bench.peers.posting import asked, post_for
from penstock.integrations.http_client import Client, Egress

LAUNCH: Final = Launch(
    command=(sys.executable, "-m", "bench.posting"),
    variables={"PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))},
)
TIMEOUT_SECONDS: Final = 15.0  # As a subscription has it.
LOOPBACK: Final = ip_network("127.0.0.0/8")


async def main() -> None:
    wanted = asked()
    async with Client(Egress((LOOPBACK,))) as client:
        route = client.prepare(wanted.url, [("Content-Type", "application/json")])

        async def post() -> int:
            answer = await client.post(route, b"", wanted.body, timeout=TIMEOUT_SECONDS)
            return answer.status

        await post_for(wanted, post)


if __name__ == "__main__":
    uvloop.run(main())
