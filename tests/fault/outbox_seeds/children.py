"""A worker of the outbox, the API, or the simulator, as a process.

`python -m tests.fault.outbox_seeds.children ARGUMENTS`, which are one of the structs in JSON.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from time import monotonic
from typing import Any, TypeAlias
from urllib.parse import unquote

import msgspec
import uvloop

from penstock import Penstock
from penstock.base.aio import alongside
from penstock.base.log import configure
from penstock.cli.lifetime import listening
from penstock.compose.outbox import DOMAIN, build
from penstock.contract import Domain, Resources, Runtime, Service
from penstock.domains.outbox.crash_point import CrashPoint
from penstock.domains.outbox.rails.simulator.order import Order, OrderBook
from penstock.domains.outbox.rails.simulator.server import Simulator, open_simulator, serving
from tests.fault.outbox_seeds.plan import name_faults
from tests.fault.outbox_seeds.traffic import TrafficRecord
from tests.fault.record import write_line
from tests.fault.system_time import set_offset
from tests.fault.waiting import pause

RECONCILE = "outbox.reconcile"
RECONCILE_SECONDS = 0.25  # Between two cycles of the reconciler, which has 2 s otherwise.
# How long the first answer to a claim takes in a process with a wrong clock: a few cycles.
UNANSWERED_SECONDS = 0.6


class WorkerArguments(msgspec.Struct, tag="worker", kw_only=True):
    """A worker that is killed or stopped at a label, which it has reached `skip` times before."""

    dsn: str
    record: str
    skew_minutes: int = 0
    how: str | None = None
    label: str | None = None
    skip: int = 0


class ApiArguments(msgspec.Struct, tag="api", kw_only=True):
    """The API on a port, which takes the reports of the rail."""

    dsn: str
    port: int
    record: str
    skew_minutes: int


class SimulatorArguments(msgspec.Struct, tag="simulator", kw_only=True):
    """The simulator on a port and a ledger."""

    port: int
    ledger: str
    record: str
    traffic: str
    is_idempotent: bool


Arguments: TypeAlias = WorkerArguments | ApiArguments | SimulatorArguments


async def main(arguments: Arguments) -> None:
    match arguments:
        case WorkerArguments():
            await run_worker(arguments)
        case ApiArguments():
            await run_api(arguments)
        case SimulatorArguments():
            await run_simulator(arguments)


async def run_simulator(arguments: SimulatorArguments) -> None:
    record = open_record(arguments.record)
    opened = await open_simulator(
        Path(arguments.ledger), is_idempotent=arguments.is_idempotent, may_crash=True
    )
    simulator = RecordedSimulator(
        ledger=opened.ledger,
        is_idempotent=opened.is_idempotent,
        may_crash=opened.may_crash,
        orders=RecordedOrders(record),
        traffic=TrafficRecord(Path(arguments.traffic)),
        record=record,
    )
    with closing(simulator.ledger):
        async with serving(simulator, port=arguments.port):
            await asyncio.Event().wait()


class RecordedOrders(OrderBook):
    """Orders that are recorded when they are carried out: not each that was planned is."""

    def __init__(self, record: int) -> None:
        super().__init__()
        self._record = record

    def take(self, instruction_id: str, own: Order | None) -> Order:
        order = super().take(instruction_id, own)
        for name in name_faults(msgspec.to_builtins(order)):
            write_line(self._record, "order", name)
        return order


@dataclass(slots=True, kw_only=True)
class RecordedSimulator(Simulator):
    """A simulator that records each payment and query, before anything can fail."""

    traffic: TrafficRecord
    record: int

    async def answer(self, request: Any) -> tuple[int, bytes]:
        match request.method, request.path.strip("/").split("/"):
            case "POST", ["payments"]:
                key = request.headers.get("idempotency-key", "")
                sent = self.traffic.pay(key, _field(request.body, "outbox_id"))
                # Explicit: `super()` does not work in a dataclass with slots.
                status, body = await Simulator.answer(self, request)
                self.traffic.answer(key, sent, _field(body, "code"))
            case "GET", ["payments", quoted]:
                key, since = unquote(quoted), monotonic()
                status, body = await Simulator.answer(self, request)
                self.traffic.query(key, _field(body, "code"), since=since)
                if _field(body, "code") == "NOT_FOUND" and await self._has(key):
                    write_line(self.record, "order", "query_of_hidden")
            case _:
                status, body = await Simulator.answer(self, request)
        return status, body

    async def _has(self, key: str) -> bool:
        entries, _ = await self.read(after=0, limit=10_000)
        return any(entry.key == key for entry in entries)


def _field(body: bytes, name: str) -> str:
    return str(msgspec.json.decode(body).get(name, ""))


async def run_api(arguments: ApiArguments) -> None:
    """Serve the API as `penstock serve` does, without a worker: its clock is never corrected."""
    set_offset(timedelta(minutes=arguments.skew_minutes))
    if arguments.skew_minutes:
        write_line(open_record(arguments.record), "skew", "api")
    app = Penstock(arguments.dsn, domains=[DOMAIN], migrates=False)
    async with app, listening(app, host="127.0.0.1", port=arguments.port):
        await asyncio.Event().wait()


async def run_worker(arguments: WorkerArguments) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    set_offset(timedelta(minutes=arguments.skew_minutes))
    app = Penstock(
        arguments.dsn, domains=[make_domain(make_crash_point(arguments))], migrates=False
    )
    async with app:
        if arguments.skew_minutes:
            write_line(open_record(arguments.record), "skew", "worker")
            await _reconcile_first(app)
        await app.run_worker(stop)


async def _reconcile_first(app: Penstock) -> None:
    """Reconcile before the first claim, by the clock of the machine.

    In a worker the services start together with the first claim; one that waits for a connection or
    a lock is as late as this. Without it, the clock would be wrong for one statement only.
    """
    (reconcile,) = [each for each in app.services if each.name == RECONCILE]
    async with alongside(app.run_service(reconcile, asyncio.Event())):
        await pause(UNANSWERED_SECONDS)


def open_record(path: str) -> int:
    """Return the descriptor of the record that all processes append to."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)


def make_crash_point(arguments: WorkerArguments) -> CrashPoint:
    """Return what records a label, and ends or stops this process there."""
    record = open_record(arguments.record)
    left = arguments.skip

    def crash_point(label: str) -> None:
        nonlocal left
        if label != arguments.label:
            return
        left -= 1
        if left == -1:
            write_line(record, arguments.how, label)
            os.kill(os.getpid(), signal.SIGKILL if arguments.how == "kill" else signal.SIGSTOP)

    return crash_point


def make_domain(crash_point: CrashPoint) -> Domain:
    """Return the outbox as it is composed in production, with a reconciler that looks often."""

    def make(resources: Resources) -> Runtime:
        runtime = build(resources, crash_point=crash_point)
        # The simulator is a process of its own here, which can be killed.
        services = [each for each in runtime.services if each.name != "outbox.simulator"]
        return replace(runtime, services=[_often(each) for each in services])

    return replace(DOMAIN, build=make)


def _often(service: Service) -> Service:
    if service.name != RECONCILE:
        return service
    return replace(service, run=lambda stop: _run_often(service.run, stop))


async def _run_often(run: Callable[[asyncio.Event], Awaitable[None]], stop: asyncio.Event) -> None:
    """Run a service in short turns: each begins with a cycle."""
    while not stop.is_set():
        turn = asyncio.Event()
        asyncio.get_running_loop().call_later(RECONCILE_SECONDS, turn.set)
        await run(turn)


if __name__ == "__main__":
    configure("info")
    uvloop.run(main(msgspec.json.decode(sys.argv[1], type=Arguments)))
