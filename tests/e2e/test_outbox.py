"""The outbox with real processes: `penstock up`, its simulator, and reports that come later."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock.postgres.embedded import find_running
from penstock.postgres.pool import connect
from tests.e2e.command import penstock
from tests.fault.waiting import until

PATIENCE = 90.0  # Seconds; a doubt is asked about within a few, on a busy machine later.
KEY = "a-key-of-the-test"
SECRET = "the secret of the results"
HEADERS = {"Authorization": f"Bearer {KEY}"}


@dataclass(frozen=True, slots=True)
class Up:
    """A running `penstock up` on a database of its own."""

    client: httpx.AsyncClient
    url: str

    async def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        answer = await self.client.request(method, path, json=body)
        assert answer.status_code < 300, answer.text
        return answer.json()

    async def send(self, name: str, **simulate: Any) -> str:
        sent = await self.ask(
            "POST",
            "/outbox/instructions",
            {
                "instruction_id": name,
                "participant_id": "acme",
                "idempotency_key": "1",
                "rail_type": "simulator",
                "payload": {
                    "amount": "12.50",
                    "currency": "EUR",
                    "destination": {"iban": "DE89370400440532013000"},
                    "simulate": simulate,
                },
            },
        )
        return sent["outbox_id"]

    async def state(self, outbox_id: str) -> str:
        return (await self.ask("GET", f"/outbox/instructions/{outbox_id}"))["instruction"]["state"]

    async def states(self, outbox_id: str) -> list[str]:
        shown = await self.ask("GET", f"/outbox/instructions/{outbox_id}")
        return [each["state"] for each in shown["attempts"]]

    async def becomes(self, outbox_id: str, state: str) -> None:
        async def has_become() -> bool:
            return await self.state(outbox_id) == state

        await until(has_become, within=PATIENCE)

    async def set_secret(self) -> str:
        """Give the rail of the simulator a secret for its reports; return the simulator's URL."""

        async def has_rail() -> bool:
            return bool((await self.ask("GET", "/outbox/rails"))["rails"])

        await until(has_rail, within=PATIENCE)
        (rail,) = (await self.ask("GET", "/outbox/rails"))["rails"]
        given = {name: rail[name] for name in ("adapter", "code_set", "config")}
        await self.ask("PUT", "/outbox/rails/simulator", given | {"result_secret": SECRET})
        return rail["config"]["url"]

    async def ledger(self) -> Any:
        return await self.ask("GET", "/outbox/simulator/ledger")


@asynccontextmanager
async def running_up(folder: Path) -> AsyncGenerator[Up]:
    """Run `penstock up` in an empty folder."""
    given = {"PENSTOCK_ADMIN_KEY": KEY, "PENSTOCK_DOMAINS": "outbox,webhooks"}
    with penstock("up", "--port", "0", folder=folder, environment=given) as command:
        found = await asyncio.to_thread(command.wait_for, r"api +(http://\S+)")
        url = str(found.group(1))
        async with httpx.AsyncClient(base_url=url, headers=HEADERS, timeout=30) as client:
            yield Up(client, url)
        assert await asyncio.to_thread(command.stop) == 0


async def reports(folder: Path) -> set[str]:
    """Return the statuses that were reported."""
    dsn = find_running(folder / ".penstock")
    assert dsn is not None
    db = await connect(dsn)
    rows = await db.fetch("SELECT status FROM penstock.outbox_result")
    await db.close()
    return {row["status"] for row in rows}


@pytest.mark.covers("E39", "E41")
async def test_instructions_reach_the_simulator_and_its_reports_come_back(tmp_path: Path) -> None:
    """The whole way, in one process: REST, worker, rail, ledger, signed reports, events."""
    async with running_up(tmp_path) as up:
        simulator = await up.set_secret()
        paid = await up.send("paid")
        lost = await up.send("lost", lose="after_booking")
        accepted = {
            code: await up.send(code.lower(), code="ACCEPTED") for code in ("SETTLED", "RETURNED")
        }
        refused = await up.send("refused", code="REJECTED")
        await up.becomes(refused, "FAILED")
        keys = {each["outbox_id"]: each["key"] for each in (await up.ledger())["payments"]}

        async with httpx.AsyncClient(base_url=simulator, timeout=30) as bank:
            for code, outbox_id in accepted.items():
                report = {"url": f"{up.url}/outbox/results", "secret": SECRET}
                body = {"key": keys[outbox_id], "code": code, "report": report}
                settled = await bank.post("/settlements", json=body)
                assert settled.status_code == 200, settled.text

        for code, outbox_id in accepted.items():
            await up.becomes(outbox_id, code)
        # Either the report or the next poll was first; the reports arrived in any case.
        assert await reports(tmp_path) == {"settled", "returned"}
        assert (await up.states(paid))[:2] == ["DISPATCHING", "DISPATCHED"]
        assert {"UNKNOWN", "DISPATCHED"} <= set(await up.states(lost))
        ledger = await up.ledger()
        booked = [each["instruction_id"] for each in ledger["payments"] if each["is_booked"]]
        assert booked == ["paid", "lost", "settled", "returned"], "each once, in order"
        assert ledger["totals"]["repeated"] == {}
        events = await up.ask("GET", "/events")
        assert {each["type"] for each in events["events"]} >= {
            "outbox.dispatched", "outbox.unknown", "outbox.settled", "outbox.returned",
            "outbox.failed",
        }  # fmt: skip
