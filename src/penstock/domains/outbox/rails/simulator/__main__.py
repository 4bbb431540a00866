"""`python -m penstock.domains.outbox.rails.simulator`: the simulator as a process of its own.

It prints its URL, and runs until it is stopped. An order may crash it.
"""

import argparse
import asyncio
import signal
import sys
from contextlib import closing
from pathlib import Path

from penstock.domains.outbox.rails.simulator.server import open_simulator, serving


class _Options(argparse.Namespace):
    port: int
    ledger: Path
    not_idempotent: bool


async def run(options: _Options) -> None:
    """Serve until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    simulator = await open_simulator(
        options.ledger, is_idempotent=not options.not_idempotent, may_crash=True
    )
    with closing(simulator.ledger):
        async with serving(simulator, port=options.port) as url:
            sys.stdout.write(f"{url}\n")
            sys.stdout.flush()
            await stop.wait()


def main() -> None:
    """Read the options and serve."""
    parser = argparse.ArgumentParser(
        prog="python -m penstock.domains.outbox.rails.simulator", description=__doc__
    )
    parser.add_argument("--port", type=int, default=0, help="port of loopback; 0 takes a free one")
    parser.add_argument("--ledger", type=Path, required=True, help="file of the ledger")
    parser.add_argument(
        "--not-idempotent", action="store_true", help="book every request, whatever its key"
    )
    asyncio.run(run(parser.parse_args(namespace=_Options())))


if __name__ == "__main__":
    main()
