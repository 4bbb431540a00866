"""A worker of payments and of the outbox that dies at one point of the way of a payment.

`python -m tests.fault.payments_worker DSN LABEL`. With the label `never` it runs until SIGTERM.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import uvloop

from penstock import Penstock
from penstock.base.log import configure
from penstock.compose import outbox, payments, webhooks
from penstock.contract import Resources, Runtime
from penstock.domains.payments.execute import BuiltInEngine, Executed, Execution, Refused
from penstock.domains.payments.runtime import build as build_payments
from penstock.kernel.item import Item, Outcome, SettledAttempt
from penstock.kernel.kind import AnyKind
from penstock.postgres.pool import Connection

LABELS = (
    "after_claim",
    "before_commit",
    "after_commit",
    "in_settle",
    "in_results",
)


async def main(dsn: str, label: str) -> None:
    asked_to_stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asked_to_stop.set)
    domains = [
        webhooks.DOMAIN,
        replace(outbox.DOMAIN, build=make_outbox(label)),
        replace(payments.DOMAIN, build=make_payments(label)),
    ]
    async with Penstock(dsn, domains=domains) as app:
        await app.run_worker(asked_to_stop)


def die_at(label: str, reached: str) -> None:
    if label == reached:
        os.kill(os.getpid(), signal.SIGKILL)


def make_payments(label: str) -> Any:
    """Return the factory of payments that dies in, before or after the transaction."""

    async def execute(db: Connection, executions: Sequence[Execution]) -> list[Executed | Refused]:
        answers = await payments.send_instructions(db, executions)
        die_at(label, "before_commit")
        return answers

    def build(resources: Resources) -> Runtime:
        engine = BuiltInEngine(
            pool=resources.pool,
            execute=execute,
            notify=payments.make_notifier(resources.settings, log=resources.log),
        )

        async def handle_many(items: list[Item[Any]]) -> list[Outcome | Exception]:
            outcomes = await engine.handle_many(items)
            die_at(label, "after_commit")
            return outcomes

        runtime = build_payments(resources, engines={"builtin": handle_many})
        return replace(runtime, kinds=[dying(kind, label) for kind in runtime.kinds])

    return build


def dying(kind: AnyKind, label: str) -> AnyKind:
    """Return the kind with a claim and a settle that may be the last."""

    async def preload(db: Connection, items: Sequence[Item[Any]]) -> Sequence[Any]:
        die_at(label, "after_claim")
        assert kind.preload is not None
        return await kind.preload(db, items)

    return recording(replace(kind, preload=preload), label, "in_settle")


def make_outbox(label: str) -> Any:
    """Return the factory of the outbox that dies once results are applied and not committed."""

    def build(resources: Resources) -> Runtime:
        runtime = outbox.DOMAIN.build(resources)
        return replace(
            runtime,
            kinds=[recording(kind, label, "in_results") for kind in runtime.kinds],
            # The simulator runs in the process of the test.
            services=[each for each in runtime.services if each.name != "outbox.simulator"],
        )

    return build


def recording(kind: AnyKind, label: str, reached: str) -> AnyKind:
    """Return the kind with a settle that dies before its commit."""

    async def record(
        db: Connection, token: int, attempts: Sequence[SettledAttempt]
    ) -> Sequence[str] | None:
        assert kind.record is not None
        states = await kind.record(db, token, attempts)
        die_at(label, reached)
        return states

    return replace(kind, record=record)


if __name__ == "__main__":
    configure("info")
    uvloop.run(main(*sys.argv[1:]))
