"""Ports of loopback for servers that a test starts."""

import random
import socket

# Below the ports that systems give to outgoing connections (32768 on Linux, 49152 elsewhere):
# otherwise a connection of another process may take the port of a server while it is restarted.
PORTS = range(20_000, 32_000)
TRIES_MAX = 100
_returned: set[int] = set()


def free_port() -> int:
    """Return a port that no server listens on, and that this process has not returned before.

    A server that was killed is started again on its port; nobody else may have taken it meanwhile.
    """
    for port in random.sample(PORTS, TRIES_MAX):
        if port in _returned:
            continue
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            _returned.add(port)
            return port
    raise AssertionError(f"none of {TRIES_MAX} ports is free")
