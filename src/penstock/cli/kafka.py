"""`penstock kafka`: a process that accepts events or payments from a topic, and may run them."""

import asyncio
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Literal, get_args

import click

from penstock.app import Penstock
from penstock.base.aio import alongside, spawn
from penstock.cli.lifetime import listening, work_until_asked
from penstock.cli.load import load_app
from penstock.compose.payments import payment_consumer
from penstock.compose.webhooks import event_consumer
from penstock.console.database import data_dir_option, find_dsn, no_migrate_option
from penstock.console.output import json_option, print_json
from penstock.console.process import StopSignal, check_host, run_until_stopped
from penstock.contract import Service
from penstock.domains.payments.schedule import Payments
from penstock.domains.payments.topics import PaymentTopics
from penstock.domains.webhooks.settings import WebhookSettings

What = Literal["events", "payments"]
WHAT = get_args(What)


@click.group()
def kafka() -> None:
    """Accept events and payments from Kafka."""


@kafka.command()
@click.argument("what", metavar="[events|payments]", type=click.Choice(WHAT), default="events")
@click.option(
    "--app",
    "spec",
    metavar="MODULE:NAME",
    help="Your Penstock app, for the steps of its payments and its handlers.",
)
@click.option("--deliver", is_flag=True, help="Also run a worker, as `penstock worker` does.")
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    help="Serve /metrics and /health here; 0: any port.",
)
@click.option(
    "--metrics-host", default="127.0.0.1", show_default=True, help="Address for --metrics-port."
)
@no_migrate_option
@data_dir_option
@json_option
def consume(
    *,
    what: What,
    spec: str | None,
    deliver: bool,
    metrics_port: int | None,
    metrics_host: str,
    no_migrate: bool,
    data_dir: Path | None,
    as_json: bool,
) -> None:
    """Accept the events of PENSTOCK_KAFKA_TOPIC, or payments, until the process is stopped.

    Payments are those of PENSTOCK_PAYMENTS_KAFKA_TOPIC.

    Many may run, in one consumer group. Ctrl-C or SIGTERM stops reading, finishes the present
    batch, commits its offsets, leaves the group, and waits for deliveries in progress.
    """
    app = load_app(spec) if spec else Penstock()
    app.dsn, app.data_dir = app.dsn or find_dsn(data_dir), app.data_dir or data_dir
    app.migrates = app.migrates and not no_migrate
    check_host(metrics_host)

    async def run(stop: StopSignal) -> None:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(app)
            consumer, started = _consumer(what, app)
            if metrics_port is not None:
                started["metrics"] = await stack.enter_async_context(
                    listening(app, host=metrics_host, port=metrics_port, is_health_only=True)
                )
            consuming = app.run_service(consumer, stop.asked)
            stop.started()
            print_json(started) if as_json else click.echo(_summary(what, started))
            await (_deliver_beside(app, consuming) if deliver else consuming)

    run_until_stopped(run)


async def _deliver_beside(app: Penstock, consuming: Coroutine[Any, Any, None]) -> None:
    """Run the worker beside the consumer; it stops last, to deliver what was accepted."""
    stop = StopSignal()
    async with alongside(app.run_sweeper()), asyncio.TaskGroup() as group:
        spawn(group, work_until_asked(app, stop), name="worker")
        await consuming
        stop.asked.set()


def _consumer(what: What, app: Penstock) -> tuple[Service, dict[str, Any]]:
    """Return the service that reads the topic, and the names of its topic and group."""
    if what == "events":
        chosen = app.resources.section(WebhookSettings)
        names = {"topic": chosen.kafka_topic, "group": chosen.kafka_group}
        return event_consumer(app.resources), names
    topics = app.resources.section(PaymentTopics)
    names = {"topic": topics.payments_kafka_topic, "group": topics.payments_kafka_group}
    return payment_consumer(app.resources, app.api(Payments)), names


def _summary(what: What, started: dict[str, Any]) -> str:
    source = f"penstock takes {what} from {started['topic']} as one of {started['group']}"
    return f"{source}; metrics at {started['metrics']}/metrics" if "metrics" in started else source
