"""A rail of your own: an adapter in 60 lines, with the simulator as its bank.

A package offers the factory `open_rail` as an entry point of the group `penstock.rails`.
"""

import asyncio
import json
from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from ipaddress import ip_network
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import UUID

from penstock.base.errors import CallFailed
from penstock.domains.outbox.instruction import Instruction
from penstock.domains.outbox.rails.rail import (
    NoAnswer,
    NotFound,
    NotSent,
    QueryResult,
    RailAnswer,
    RailProperties,
    SendResult,
    rail_key,
    send_not_after,
)
from penstock.domains.outbox.rails.simulator.server import open_simulator, serving
from penstock.integrations.http_client import Client, Egress, Response

# After these the bank has certainly received nothing. A timeout proves nothing.
NEVER_SENT = {"refused_address", "bad_name", "connect", "tls", "expired"}
JSON = ("Content-Type", "application/json")


class BankRail:
    """Pays through the API of one bank."""

    properties = RailProperties(
        key_valid_for=timedelta(days=30),  # How long the bank recognises a repeated key.
        not_found_is_final_after=timedelta(seconds=10),  # Its queries lag behind by this much.
        can_query=True,
        is_asynchronous=True,
    )

    def __init__(self, url: str, secret: str | None) -> None:
        self._url = url
        self._headers = [] if secret is None else [("Authorization", f"Bearer {secret}")]
        # The bank of this example is on this machine; without a network, only public ones.
        self._client = Client(Egress((ip_network("127.0.0.0/8"),)))

    async def send(self, instruction: Instruction, *, timeout: timedelta) -> SendResult:
        """Send once; the key is the same for every attempt."""
        body = {
            "instruction_id": instruction.instruction_id,
            "amount": str(instruction.amount),
            "currency": instruction.currency,
            "simulate": instruction.payload.get("simulate"),
        }
        headers = [*self._headers, JSON, ("Idempotency-Key", rail_key(instruction))]
        try:
            reply = await self._client.post(
                self._client.prepare(f"{self._url}/payments"),
                headers,
                json.dumps(body).encode(),
                timeout=timeout.total_seconds(),
                not_after=send_not_after.get(),  # Until then the lease of this attempt is valid.
            )
        except CallFailed as failed:
            return (NotSent if failed.kind in NEVER_SENT else NoAnswer)(str(failed))
        return read(reply) or RailAnswer(code=f"HTTP_{reply.status}")

    async def query(self, instruction: Instruction, *, timeout: timedelta) -> QueryResult:
        """Ask for the state; what is not a clear answer is none."""
        route = self._client.prepare(f"{self._url}/payments/{rail_key(instruction)}")
        try:
            reply = await self._client.get(route, self._headers, timeout=timeout.total_seconds())
        except CallFailed as failed:
            return NoAnswer(str(failed))
        answer = read(reply)
        if answer is not None and answer.code == "NOT_FOUND":
            return NotFound()
        if answer is None or reply.status != 200:
            return NoAnswer(f"HTTP {reply.status}")
        return answer

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()


def read(reply: Response) -> RailAnswer | None:
    """Return the bank's answer, or None for something else, such as the page of a proxy."""
    try:
        document: Any = json.loads(reply.body)
    except ValueError:
        return None
    if not isinstance(document, dict) or not isinstance(document.get("code"), str):
        return None
    amount = document.get("amount")
    return RailAnswer(
        code=document["code"],
        reference=document.get("reference"),
        amount=None if amount is None else Decimal(amount),
        currency=document.get("currency"),
    )


def open_rail(config: Mapping[str, Any], secret: str | None, _resources: object) -> BankRail:
    """The factory: `config` and `secret` are those of the rail's row."""
    return BankRail(config["url"], secret)


async def main() -> None:
    """Pay once although the first answer is lost."""
    instruction = Instruction(
        outbox_id=UUID("0199f3a0-0000-7000-8000-000000000001"),
        item_id=1,
        instruction_id="invoice-17",
        participant_id="acme",
        sequence_id=1,
        idempotency_key="1",
        rail_type="bank",
        payload={"simulate": {"lose": "after_booking"}},
        amount=Decimal("12.50"),
        currency="EUR",
        created_at=datetime.now(UTC),
    )
    with TemporaryDirectory() as folder:
        simulator = await open_simulator(Path(folder) / "ledger.sqlite3")
        with closing(simulator.ledger):
            async with serving(simulator) as url:
                rail = open_rail({"url": url}, None, None)
                for _ in range(2):
                    print(await rail.send(instruction, timeout=timedelta(seconds=30)))
                print(await rail.query(instruction, timeout=timedelta(seconds=30)))
                print(simulator.ledger.totals())
                await rail.close()


if __name__ == "__main__":
    asyncio.run(main())
