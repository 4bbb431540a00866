"""What the forked processes run: a worker of the outbox as in production, or the simulator."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from time import time_ns

import msgspec

from penstock import Penstock
from penstock.compose.outbox import DOMAIN, build
from penstock.contract import Domain, Resources, Runtime, Service
from penstock.domains.outbox.probe import Probe
from penstock.domains.outbox.rails.simulator.server import open_simulator, serving
from penstock.postgres.clock import DatabaseClock
from tests.fault.record import write_line

RECONCILE_SECONDS = 0.25  # Between two cycles of the reconciler, which has 2 s otherwise.


class WorkerArguments(msgspec.Struct, tag="worker", kw_only=True):
    """A worker that is killed or stopped at a label, which it has reached `skip` times before."""

    dsn: str
    record: str
    skew_minutes: int = 0
    how: str | None = None
    label: str | None = None
    skip: int = 0


class SimulatorArguments(msgspec.Struct, tag="simulator", kw_only=True):
    """The simulator on a port and a ledger."""

    port: int
    ledger: str
    is_idempotent: bool


async def run_simulator(arguments: SimulatorArguments) -> None:
    simulator = await open_simulator(
        Path(arguments.ledger), is_idempotent=arguments.is_idempotent, may_crash=True
    )
    with closing(simulator.ledger):
        async with serving(simulator, port=arguments.port):
            await asyncio.Event().wait()


async def run_worker(arguments: WorkerArguments) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    app = Penstock(
        arguments.dsn,
        domains=[make_domain(make_probe(arguments))],
        migrates=False,
        clock=DatabaseClock(local=SkewedClock(arguments.skew_minutes)),
    )
    async with app:
        await app.run_worker(stop)


class SkewedClock:
    """The clock of a machine that is minutes ahead, or behind."""

    def __init__(self, minutes: int) -> None:
        self._offset = minutes * 60 * 1_000_000

    def microseconds(self) -> int:
        return time_ns() // 1_000 + self._offset


def make_probe(arguments: WorkerArguments) -> Probe:
    """Return what records a label, and ends or stops this process there."""
    record = os.open(arguments.record, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    left = arguments.skip

    def probe(label: str) -> None:
        nonlocal left
        if label != arguments.label:
            return
        left -= 1
        if left == -1:
            write_line(record, arguments.how, label)
            os.kill(os.getpid(), signal.SIGKILL if arguments.how == "kill" else signal.SIGSTOP)

    return probe


def make_domain(probe: Probe) -> Domain:
    """Return the outbox as it is composed in production, with a reconciler that looks often."""

    def make(resources: Resources) -> Runtime:
        runtime = build(resources, probe=probe)
        # The simulator is a process of its own here, which can be killed.
        services = [each for each in runtime.services if each.name != "outbox.simulator"]
        return replace(runtime, services=[_often(each) for each in services])

    return replace(DOMAIN, build=make)


def _often(service: Service) -> Service:
    if service.name != "outbox.reconcile":
        return service
    return replace(service, run=lambda stop: _run_often(service.run, stop))


async def _run_often(run: Callable[[asyncio.Event], Awaitable[None]], stop: asyncio.Event) -> None:
    """Run a service in short turns: each begins with a cycle."""
    while not stop.is_set():
        turn = asyncio.Event()
        asyncio.get_running_loop().call_later(RECONCILE_SECONDS, turn.set)
        await run(turn)
