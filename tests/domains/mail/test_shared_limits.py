"""Limits per second and minute over processes that share a Redis, on a clock that stands."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from penstock.base.clock import FakeClock
from penstock.integrations.redis.client import connect
from penstock.integrations.redis.gate import RedisGate
from penstock.kernel.item import Done, Snooze
from tests.conformance.scene import PATIENT
from tests.domains.mail.outbox import ADA, Outbox, opened_outbox
from tests.redis_server import running_redis
from tests.smtp_server import SmtpServer, serving

PROCESSES = 3


@pytest.fixture
async def outboxes(
    dsn: str, clock: FakeClock, tmp_path: Path
) -> AsyncGenerator[tuple[list[Outbox], SmtpServer]]:
    """Several apps on one database, one relay and one Redis, each with its own client."""
    async with AsyncExitStack() as stack:
        redis = stack.enter_context(running_redis(tmp_path))
        relay = await stack.enter_async_context(serving(SmtpServer()))
        opened: list[Outbox] = []
        for _ in range(PROCESSES):
            client = connect(redis.url)
            stack.push_async_callback(client.aclose)
            gate = RedisGate(client, clock=clock, timeout=PATIENT)
            opened.append(await stack.enter_async_context(opened_outbox(dsn, clock, gate=gate)))
        await opened[0].relay_to(relay)
        yield opened, relay


@pytest.mark.parametrize(
    ("scope", "name"),
    [("relay", "main"), ("sender", "shop@example.com"), ("domain", "example.org"), ("domain", "*")],
)
@pytest.mark.parametrize("rate", [{"per_second": 0.01}, {"per_minute": 1}], ids=str)
async def test_a_rate_holds_for_all_processes_together(
    outboxes: tuple[list[Outbox], SmtpServer], *, scope: str, name: str, rate: dict[str, float]
) -> None:
    """One mail leaves now, whichever process has it; the others wait, and it costs no attempt."""
    apps, relay = outboxes
    await apps[0].limit(scope, name, **rate)
    await apps[0].set_lane(batch_size=1)

    outcomes = []
    for app in apps:
        await app.send(ADA)
        outcomes += [each.outcome for each in await app.run()]

    assert [type(each) for each in outcomes] == [Done] + [Snooze] * (PROCESSES - 1)
    assert len(relay.messages) == 1
    (row,) = await apps[0].app.pool.fetch(
        "SELECT count(*) AS waiting FROM penstock.ready WHERE attempt = forgiven"
    )
    assert row["waiting"] == PROCESSES - 1
