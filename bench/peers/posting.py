"""How HTTP clients are timed that do nothing but POST: the same loop for each of them.

Standard library only: this runs in the peers' environments.
"""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

Post = Callable[[], Awaitable[int]]
"""Sends the body once and returns the status of the whole answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What to send, where, how many at once, and for how long."""

    url: str
    body: bytes
    connections: int
    seconds: float


class WrongStatus(Exception):
    """An answer that is not a 200."""


def asked() -> Asked:
    """Return what the bench asks for, which is the only argument of this process."""
    given = json.loads(sys.argv[1])
    return Asked(**{**given, "body": given["body"].encode()})


async def post_for(asked: Asked, post: Post) -> None:
    """Let each of the connections post again as soon as it has its answer; print what was done."""
    done = 0
    started, cpu_started = time.perf_counter(), time.process_time()
    until = started + asked.seconds

    async def repeat() -> None:
        nonlocal done
        while time.perf_counter() < until:
            status = await post()
            if status != 200:
                raise WrongStatus(status)
            done += 1

    async with asyncio.TaskGroup() as group:
        for _ in range(asked.connections):
            group.create_task(repeat())
    took = {
        "seconds": time.perf_counter() - started,
        "cpu_seconds": time.process_time() - cpu_started,
    }
    print(json.dumps({"items": done, **took}))
