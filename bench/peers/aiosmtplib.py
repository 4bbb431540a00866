"""aiosmtplib as its documentation shows it: an EmailMessage, and `aiosmtplib.send` for each mail.

`send` opens a connection for each mail. `at_once` loops do that side by side; with 1 it is the
plain loop. The message is built for each mail, as ours is.
"""

import asyncio
import json
import sys
import time
from email.message import EmailMessage

import aiosmtplib
import uvloop

from bench.peers.mail_text import RECIPIENT, SENDER, SUBJECT, text


async def main() -> None:
    asked = json.loads(sys.argv[1])
    body = text(asked["size"])
    sent = 0
    started, cpu_started = time.perf_counter(), time.process_time()
    until = started + asked["seconds"]

    async def repeat() -> None:
        nonlocal sent
        while time.perf_counter() < until:
            message = EmailMessage()
            message["From"] = SENDER
            message["To"] = RECIPIENT
            message["Subject"] = SUBJECT
            message.set_content(body)
            await aiosmtplib.send(
                message,
                hostname=asked["host"],
                port=asked["port"],
                start_tls=False,
            )
            sent += 1

    async with asyncio.TaskGroup() as group:
        for _ in range(asked["at_once"]):
            group.create_task(repeat())
    took = {
        "seconds": time.perf_counter() - started,
        "cpu_seconds": time.process_time() - cpu_started,
    }
    print(json.dumps({"items": sent, **took}))


if __name__ == "__main__":
    uvloop.run(main())
