"""Wrong settings of Temporal stop a process at its start, and never use up a payment's attempts."""

from collections.abc import Generator
from datetime import timedelta
from pathlib import Path

import pytest

from penstock.base.clock import FakeClock
from penstock.base.errors import BadSetting
from penstock.base.settings import read_once
from tests.domains.outbox.sending.ledger import Ledger
from tests.domains.payments.executing.scene import opened_scene

MINUTE = timedelta(minutes=1)
RUNS = 8  # More than the lane's attempts, which are five.


@pytest.fixture(autouse=True)
def fresh_settings() -> Generator[None]:
    """A process reads its environment once; each of these tests has its own."""
    read_once.cache_clear()
    yield
    read_once.cache_clear()


@pytest.mark.parametrize("name", ["TEMPORAL_TARGET", "TEMPORAL_ADDRESS"])
async def test_what_is_no_address_is_refused_at_the_start(
    dsn: str, *, clock: FakeClock, ledger: Ledger, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that starts would try each payment with it until the payment is dead."""
    monkeypatch.delenv("TEMPORAL_TARGET")
    monkeypatch.setenv(name, "http://temporal.test:7233")

    with pytest.raises(BadSetting) as refused:
        async with opened_scene(dsn, clock, ledger):
            pass

    assert name in refused.value.name
    assert "must be host:port" in refused.value.reason


async def test_a_configuration_that_cannot_be_read_uses_up_no_attempts(
    dsn: str,
    *,
    clock: FakeClock,
    ledger: Ledger,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Temporal's file may be changed while a worker runs; no payment is at fault for it."""
    file = tmp_path / "temporal.toml"
    file.write_text("[profile", encoding="utf-8")
    monkeypatch.setenv("TEMPORAL_CONFIG_FILE", str(file))
    async with opened_scene(dsn, clock, ledger) as scene:
        await scene.schedule("p-1")
        await scene.app.pool.execute("UPDATE penstock.payment_item_type SET engine = 'temporal'")

        tried = 0
        for _ in range(RUNS):
            tried += len(await scene.run_payments())
            clock.advance(MINUTE)
        await scene.app.pool.execute("UPDATE penstock.payment_item_type SET engine = 'builtin'")
        await scene.run_payments()

        assert tried == RUNS
        assert "TEMPORAL_CONFIG_FILE" in (await scene.log("p-1"))[0]["detail"]
        assert await scene.status("p-1") == "PROCESSING"
