"""The Temporal server that domains start workflows on. Needs the extra `temporal`."""

from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

from pydantic import Field
from pydantic_settings import BaseSettings

from penstock.base.errors import MissingExtra, PenstockError
from penstock.base.settings import SECTION
from penstock.contract import Finding, Resources
from penstock.domains.payments.loader import ON_TEMPORAL
from penstock.domains.payments.temporal.engine import NewExecution, NotStarted, StartExecutions
from penstock.domains.payments.temporal.models import DISPATCH_QUEUE
from penstock.domains.payments.temporal.schedules import ItemTypeRow, list_item_types

if TYPE_CHECKING:
    from temporalio.client import Client

    from penstock.integrations.temporal.start import NewWorkflow


class TemporalSettings(BaseSettings):
    """Which Temporal server, and which namespace on it."""

    model_config = SECTION

    temporal_target: str | None = Field(
        default=None, min_length=1, validation_alias="TEMPORAL_TARGET"
    )
    """Address of Temporal, as `host:7233`. Absent: `TEMPORAL_ADDRESS`, or else the address in
    Temporal's own configuration file, or else `localhost:7233`. TLS and the API key are read by
    Temporal's SDK (`TEMPORAL_TLS`, `TEMPORAL_API_KEY`, `TEMPORAL_PROFILE` and others)."""
    temporal_namespace: str | None = Field(
        default=None, min_length=1, validation_alias="TEMPORAL_NAMESPACE"
    )
    """Namespace on Temporal. Absent: that of the configuration file, or else `default`."""


def is_installed() -> bool:
    """Return whether the extra is installed."""
    return find_spec("temporalio") is not None


async def connect_as_set(chosen: TemporalSettings) -> "Client":
    """Return a client of the server that is configured.

    Raises MissingExtra, BadSetting and TemporalFailed.
    """
    if not is_installed():
        raise MissingExtra("temporal", "TEMPORAL_TARGET")
    from penstock.integrations.temporal.client import connect  # noqa: PLC0415  An extra.

    return await connect(chosen.temporal_target, chosen.temporal_namespace)


def make_start(chosen: TemporalSettings) -> StartExecutions:
    """Return what starts the workflows of items; it connects when there is one to start.

    So a worker starts, and runs its other lanes, while Temporal is down. Each call connects at most
    once, with one timeout: a lazy client would try it for each workflow, one after another. An
    address that is none raises BadSetting at once.
    """
    from penstock.integrations.temporal.client import check_environment  # noqa: PLC0415  An extra.

    check_environment(chosen.temporal_target)
    connected: Client | None = None

    async def start(executions: Sequence[NewExecution]) -> list[NotStarted | None]:
        nonlocal connected
        if connected is None:
            try:
                connected = await connect_as_set(chosen)
            except PenstockError as failed:
                # The server or the configuration is at fault, and not the items.
                return [NotStarted(str(failed), is_refused=False)] * len(executions)
        return await start_on(connected, executions)

    return start


async def start_on(client: "Client", executions: Sequence[NewExecution]) -> list[NotStarted | None]:
    """Start the workflows of items on a server; one that was started before counts as started."""
    from penstock.integrations.temporal.start import start_workflows  # noqa: PLC0415  An extra.

    failures = await start_workflows(client, [to_workflow(each) for each in executions])
    return [
        None if each is None else NotStarted(str(each), is_refused=each.kind == "refused")
        for each in failures
    ]


def to_workflow(execution: NewExecution) -> "NewWorkflow":
    """Return the workflow of an item, with its id and its context as arguments."""
    from penstock.integrations.temporal.start import NewWorkflow  # noqa: PLC0415  An extra.

    return NewWorkflow(
        id=execution.workflow_id,
        type=execution.workflow_type,
        task_queue=execution.task_queue,
        args=[execution.item_id, execution.context_json],
        start_delay=execution.start_delay,
    )


async def check_temporal(resources: Resources) -> Finding:
    """Check that Temporal answers and has workers, if an item type is executed there."""
    async with resources.pool.acquire() as db:
        rows = [row for row in await list_item_types(db) if row.engine in ON_TEMPORAL]
    if not rows:
        return Finding("ok", "temporal", "no item type is executed on it")
    used = ", ".join(row.item_type for row in rows)
    try:
        client = await connect_as_set(resources.section(TemporalSettings))
        missing = sorted({each for row in rows for each in await _find_missing(client, row)})
    except PenstockError as failed:
        return Finding("fail", "temporal", f"{used} cannot be executed: {failed}")
    if missing:
        sentence = f"{', '.join(missing)}; run penstock temporal worker"
        return Finding("warn", "temporal", f"{used} cannot be executed: {sentence}")
    return Finding("ok", "temporal", f"{used} in the namespace {client.namespace}")


async def _find_missing(client: "Client", row: ItemTypeRow) -> list[str]:
    """Return what an item type needs on Temporal and does not have."""
    from penstock.integrations.temporal.inspect import count_workers  # noqa: PLC0415  An extra.
    from penstock.integrations.temporal.schedule import describe_schedule  # noqa: PLC0415

    queues = (DISPATCH_QUEUE, row.exec_task_queue) if row.has_schedule else (row.exec_task_queue,)
    missing = [f"{each} has no worker" for each in queues if not await count_workers(client, each)]
    if row.has_schedule and await describe_schedule(client, row.schedule_id) is None:
        missing.append(f"{row.item_type} has no schedule")
    return missing
