"""Runs modules as `python -m` does, in forks of a process that has imported them.

A fork takes a few milliseconds, a new interpreter with these imports half a second of CPU time. The
children are ordinary processes: each reads its own settings, opens its own loop and connections,
and can be killed. Reads one JSON object per line, and answers with the pid of a child that it has
started or the exit code of one that has ended. Kills what is left when its input ends.
"""

import gc
import os
import runpy
import signal
import sys
from importlib import import_module
from pathlib import Path

import msgspec

from penstock.base.settings import read_once

# Composition imports these when it is called.
LATE_IMPORTS = (
    "penstock.api",
    "penstock.cli.root",
    "penstock.compose.rails",
    "penstock.domains.mail.runtime",
    "penstock.domains.outbox.rails.simulator.service",
    "penstock.domains.outbox.runtime",
    "penstock.domains.payments.runtime",
    "penstock.integrations.kafka.consumer",
    "penstock.integrations.redis.fallback",
    "penstock.integrations.redis.gate",
    "penstock.integrations.smtp",
    "penstock.integrations.temporal.client",
    "penstock.web",
)


class Start(msgspec.Struct, tag="start", kw_only=True):
    """A module to run, with what a process is started with; `log` gets its output."""

    module: str
    arguments: list[str]
    environment: dict[str, str]
    folder: str
    log: str


class Reap(msgspec.Struct, tag="reap", kw_only=True):
    """A child that has ended. Until it is reaped, no other process gets its pid."""

    pid: int


def main() -> None:
    for name in LATE_IMPORTS:
        preload(name)
    start = serve()
    if start is not None:
        run(start)


def serve() -> Start | None:
    """Carry out requests; return in each child what it has to run, and None after the last one."""
    children = set[int]()
    for line in sys.stdin.buffer:
        request: Start | Reap = msgspec.json.decode(line, type=Start | Reap)
        match request:
            case Start() as start:
                preload(start.module)
                check_nothing_is_shared()
                pid = os.fork()
                if pid == 0:
                    return start
                children.add(pid)
                respond(pid)
            case Reap(pid=pid):
                children.remove(pid)
                respond(wait(pid))
    for pid in children:
        os.kill(pid, signal.SIGKILL)
        wait(pid)
    return None


def preload(name: str) -> None:
    """Import a module, once."""
    if name not in sys.modules:
        import_module(name)
        gc.collect()
        gc.freeze()  # Or the first collection of each child would copy all pages.


def check_nothing_is_shared() -> None:
    """Fail if a child would inherit settings or a lock that another thread holds."""
    threads = [*Path("/proc/self/task").iterdir()]
    assert read_once.cache_info().currsize == 0, "a module reads settings when it is imported"
    assert len(threads) == 1, "a module starts a thread when it is imported"


def wait(pid: int) -> int:
    """Return the exit code of a child: the negative number of the signal that killed it."""
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def respond(number: int) -> None:
    sys.stdout.write(f"{number}\n")
    sys.stdout.flush()


def run(start: Start) -> None:
    """Run a module in this process, which is a child."""
    replace_descriptor(0, os.open(os.devnull, os.O_RDONLY))
    log = os.open(start.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    replace_descriptor(2, os.dup(log))
    replace_descriptor(1, log)
    os.chdir(start.folder)
    os.environ.clear()
    os.environ.update(start.environment)
    sys.argv[1:] = start.arguments
    if not hasattr(sys.modules[start.module], "__path__"):
        del sys.modules[start.module]  # It is run now, under another name.
    runpy.run_module(start.module, run_name="__main__", alter_sys=True)


def replace_descriptor(number: int, descriptor: int) -> None:
    os.dup2(descriptor, number)
    os.close(descriptor)
