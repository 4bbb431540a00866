"""The connections of a process that schedules payments."""

from collections.abc import Generator
from contextlib import AsyncExitStack

import pytest

from penstock.base.settings import read_once
from penstock.postgres.pool import connect
from tests.domains.payments.scene import opened_payments

COUNT = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
"""


@pytest.fixture(autouse=True)
def defaults(monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    """Tests open fewer connections than a process does by itself."""
    monkeypatch.delenv("PENSTOCK_POOL_SIZE_MIN", raising=False)
    monkeypatch.delenv("PENSTOCK_POOL_SIZE_MAX", raising=False)
    read_once.cache_clear()
    yield
    read_once.cache_clear()


@pytest.mark.covers("A76")
async def test_a_process_has_5_to_20_connections(dsn: str) -> None:
    """PostgreSQL counts them; one more would wait for its turn."""
    observer = await connect(dsn)

    async with opened_payments(dsn) as scene, AsyncExitStack() as stack:
        idle = await observer.fetchval(COUNT)
        for _ in range(20):
            await stack.enter_async_context(scene.app.pool.acquire())
        busy = await observer.fetchval(COUNT)
        with pytest.raises(TimeoutError):
            await stack.enter_async_context(scene.app.pool.acquire(timeout=0.1))
        refused = await observer.fetchval(COUNT)

    assert (idle, busy, refused) == (5, 20, 20)
    await observer.close()
