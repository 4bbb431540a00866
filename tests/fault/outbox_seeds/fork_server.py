"""A process that has imported everything, and forks workers, APIs and simulators on request.

A fork takes a few milliseconds, a new interpreter with these imports half a second of CPU time. The
children are ordinary processes: each opens its own loop and connections, and can be killed. Reads
one JSON object per line, answers with the pid, and kills what is left when its input ends.
"""

import gc
import os
import signal
import sys
import traceback
from importlib import import_module

import msgspec
import uvloop

from penstock.base.log import configure
from tests.fault.outbox_seeds.children import (
    ApiArguments,
    SimulatorArguments,
    WorkerArguments,
    run_api,
    run_simulator,
    run_worker,
)


class Request(msgspec.Struct):
    """What to run, and the file that gets its output."""

    arguments: WorkerArguments | ApiArguments | SimulatorArguments
    log: str


# Composition imports these when it is called.
LATE_IMPORTS = (
    "penstock.api",
    "penstock.compose.rails",
    "penstock.domains.outbox.runtime",
    "penstock.web",
)


def main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # The system removes children that have ended.
    for name in LATE_IMPORTS:
        import_module(name)
    gc.collect()
    gc.freeze()  # Or the first collection of each child would copy all pages.
    children: list[int] = []
    for line in sys.stdin.buffer:
        pid = fork(msgspec.json.decode(line, type=Request))
        children.append(pid)
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()
    for pid in children:
        kill(pid)


def fork(request: Request) -> int:
    """Run a request in a child, and return its pid."""
    pid = os.fork()
    if pid > 0:
        return pid
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        log = os.open(request.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for output in (1, 2):
            os.dup2(log, output)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        run(request.arguments)
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def run(arguments: WorkerArguments | ApiArguments | SimulatorArguments) -> None:
    configure("info")
    match arguments:
        case WorkerArguments():
            uvloop.run(run_worker(arguments))
        case ApiArguments():
            uvloop.run(run_api(arguments))
        case SimulatorArguments():
            uvloop.run(run_simulator(arguments))


def kill(pid: int) -> None:
    """Kill a child, if it is one: the pid may belong to another process by now."""
    try:
        if os.getpgid(pid) == os.getpgid(0):
            os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
