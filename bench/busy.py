"""Takes half of one core, in turns of 10 ms, until it is ended: `python -m bench.busy`."""

import time
from typing import Final

TURN_SECONDS: Final = 0.01


def main() -> None:
    """Work for one turn, rest for the next."""
    print("busy", flush=True)
    while True:
        until = time.monotonic() + TURN_SECONDS
        while time.monotonic() < until:
            pass
        time.sleep(TURN_SECONDS)


if __name__ == "__main__":
    main()
