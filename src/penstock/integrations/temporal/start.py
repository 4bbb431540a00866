"""Start many workflows: some at once, each with its own result. An id is started only once."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from temporalio.client import Client
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError

from penstock.base.aio import spawn
from penstock.integrations.temporal.errors import TemporalFailed, translated

# More were not clearly faster, and none may wait for as long as START_TIMEOUT on a slow
# server; `python -m bench --only temporal_starts` compares 10, 50, 100 and 200.
STARTS_AT_ONCE = 100
START_TIMEOUT = timedelta(seconds=10)

Result = TemporalFailed | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewWorkflow:
    """A workflow to start. `args` are encoded as JSON; the first task waits for `start_delay`."""

    id: str
    type: str
    task_queue: str
    args: Sequence[object]
    start_delay: timedelta = timedelta(0)


async def start_workflows(
    client: Client, workflows: Sequence[NewWorkflow], *, at_once: int = STARTS_AT_ONCE
) -> list[Result]:
    """Start all of them, and return for each None, or why it was not started.

    An id that was started before, by any caller and even if it has closed, counts as started, for
    as long as the namespace keeps closed workflows. If the server does not answer `at_once` starts
    in a row, the rest are not tried.
    """
    batch = _Batch(client=client, waiting=iter(enumerate(workflows)), at_once=at_once)
    batch.results = [None] * len(workflows)
    async with asyncio.TaskGroup() as group:
        for _ in range(min(at_once, len(workflows))):
            spawn(group, batch.start_waiting())
    return batch.results


@dataclass(slots=True, kw_only=True)
class _Batch:
    client: Client
    waiting: Iterator[tuple[int, NewWorkflow]]
    at_once: int
    results: list[Result] = field(default_factory=list[Result])
    _unanswered: list[TemporalFailed] = field(default_factory=list[TemporalFailed])  # In a row.

    async def start_waiting(self) -> None:
        """Start one workflow after another until none waits."""
        for place, workflow in self.waiting:
            if len(self._unanswered) < self.at_once:
                self.results[place] = await self._start(workflow)
            else:
                self.results[place] = self._unanswered[-1]

    async def _start(self, workflow: NewWorkflow) -> Result:
        try:
            await start_workflow(self.client, workflow)
        except TemporalFailed as failed:
            if failed.kind == "unavailable":
                self._unanswered.append(failed)
                return failed
            result = failed
        else:
            result = None
        self._unanswered.clear()
        return result


async def start_workflow(
    client: Client, workflow: NewWorkflow, *, repeats_failed: bool = False
) -> bool:
    """Start one workflow; return whether it is new. Raises TemporalFailed.

    `repeats_failed`: it is started again if it was terminated or has failed.
    """
    policy = (
        WorkflowIDReusePolicy.ALLOW_DUPLICATE_FAILED_ONLY
        if repeats_failed
        else WorkflowIDReusePolicy.REJECT_DUPLICATE
    )
    with translated():
        try:
            await client.start_workflow(
                workflow.type,
                args=workflow.args,
                id=workflow.id,
                task_queue=workflow.task_queue,
                id_reuse_policy=policy,
                start_delay=workflow.start_delay or None,
                rpc_timeout=START_TIMEOUT,
            )
        except WorkflowAlreadyStartedError:
            return False
    return True
