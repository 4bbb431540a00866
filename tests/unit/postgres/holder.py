"""A process that runs the embedded server of a folder until it is killed or its stdin is closed."""

import sys
from pathlib import Path

from penstock.base.log import configure
from penstock.postgres.embedded import running


def main() -> None:
    """Print the postmaster's pid once the server is up, then wait for the end of stdin."""
    configure()
    with running(Path(sys.argv[1])) as server:
        print(server.pid, flush=True)
        sys.stdin.read()


main()
