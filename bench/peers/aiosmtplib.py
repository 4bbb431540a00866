"""aiosmtplib as people call it: `aiosmtplib.send`, which opens a connection for each mail.

`at_once` loops do that side by side; with 1 it is the plain loop.
"""

import asyncio
import json
import sys
import time

import aiosmtplib
import uvloop

from bench.peers.mail_text import RECIPIENT, SENDER, message


async def main() -> None:
    asked = json.loads(sys.argv[1])
    content = message(asked["size"])
    sent = 0
    started = time.perf_counter()
    until = started + asked["seconds"]

    async def repeat() -> None:
        nonlocal sent
        while time.perf_counter() < until:
            await aiosmtplib.send(
                content,
                sender=SENDER,
                recipients=[RECIPIENT],
                hostname=asked["host"],
                port=asked["port"],
                start_tls=False,
            )
            sent += 1

    async with asyncio.TaskGroup() as group:
        for _ in range(asked["at_once"]):
            group.create_task(repeat())
    print(json.dumps({"items": sent, "seconds": time.perf_counter() - started}))


if __name__ == "__main__":
    uvloop.run(main())
