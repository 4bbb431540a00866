"""Connections that send a header without end, in a process of their own.

`python -m bench.flooding JSON` prints one line of JSON: how many bytes went out, and how many
connections the server has ended. A connection that was ended is opened again.
"""

import json
import select
import socket
import sys
import time
from typing import Any, Final

CONNECTIONS: Final = 20
BYTES_EACH: Final = 20 * 1024 * 1024  # Of a connection and those that replace it.
ROUNDS: Final = 20
BYTES_PER_ROUND: Final = BYTES_EACH // ROUNDS
PIECE: Final = b"x" * 65_536
HEAD: Final = b"POST /events HTTP/1.1\r\nHost: x\r\nX-Long: "


def flood(host: str, port: int, seconds: float) -> dict[str, int]:
    """Send in rounds that are spread over the time, so that the flood lasts as long."""
    sockets: dict[int, socket.socket] = {}
    sent_bytes = ended = 0
    started = time.monotonic()
    for turn in range(ROUNDS):
        time.sleep(max(0.0, started + turn * seconds / ROUNDS - time.monotonic()))
        while len(sockets) < CONNECTIONS:
            connection = _connect(host, port)
            sockets[connection.fileno()] = connection
        until = started + (turn + 1) * seconds / ROUNDS
        sent, failed = _send_round(dict(sockets), until=until)
        sent_bytes += sent
        ended += len(failed)
        for number in failed:
            sockets.pop(number).close()
    return {"sent_bytes": sent_bytes, "ended": ended}


def _connect(host: str, port: int) -> socket.socket:
    connection = socket.create_connection((host, port), 30)
    connection.sendall(HEAD)
    connection.setblocking(False)  # noqa: FBT003 - the socket module's own form
    return connection


def _send_round(sockets: dict[int, socket.socket], *, until: float) -> tuple[int, list[int]]:
    """Send a share on every connection; return the bytes, and which connections have ended."""
    poll = select.poll()
    left = dict.fromkeys(sockets, BYTES_PER_ROUND)
    for number in sockets:
        poll.register(number, select.POLLOUT)
    failed: list[int] = []
    sent_bytes = 0
    while left and time.monotonic() < until:
        for number, _ in poll.poll(max(0.0, until - time.monotonic()) * 1000):
            try:
                sent = sockets[number].send(PIECE)
            except BlockingIOError:
                continue
            except OSError:
                failed.append(number)
                sent = left[number]
            else:
                sent_bytes += sent
            left[number] -= sent
            if left[number] <= 0:
                del left[number]
                poll.unregister(number)
    return sent_bytes, failed


def main() -> None:
    arguments: dict[str, Any] = json.loads(sys.argv[1])
    print(json.dumps(flood(**arguments)))


if __name__ == "__main__":
    main()
