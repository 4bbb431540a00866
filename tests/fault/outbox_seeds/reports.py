"""The reports of the rail about its payments, signed, over REST; sent again until they are taken.

They are true, and come as early as possible: often before the answer to the payment itself.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import msgspec

from penstock.domains.outbox.rails.simulator.entry import Entry
from penstock.domains.outbox.rails.simulator.report import sign
from tests.fault.outbox_seeds.plan import Planned
from tests.fault.outbox_seeds.proof import read_ledger
from tests.fault.waiting import pause

SECRET = "the rail's"
LOOK_SECONDS = 0.15
TIMEOUT_SECONDS = 5.0
TAKEN = 200
AWAY_MIN = 500  # From this status on, the database is away, or the process ends.

Report = tuple[str, str]  # The outbox_id and the status.


@dataclass(slots=True, kw_only=True)
class Reporter:
    """Reports what the ledger has, of the instructions that are planned to be reported."""

    url: str
    rail_type: str
    ledger: Path
    planned: Mapping[str, Planned]
    note: Callable[[str, str], None]
    taken: Counter[Report] = field(default_factory=Counter[Report])
    wrongs: list[str] = field(default_factory=list[str])

    async def run(self) -> None:
        """Report until cancelled."""
        async with httpx.AsyncClient(timeout=TIMEOUT_SECONDS) as client:
            while True:
                for entry, status in self._find_due(read_ledger(self.ledger)):
                    # The process may be down, or be killed before it answers.
                    with suppress(httpx.TransportError):
                        await self._send(client, entry, status)
                await pause(LOOK_SECONDS)

    def is_done(self) -> bool:
        """Return whether the ledger has nothing left to report."""
        return not self._find_due(read_ledger(self.ledger))

    def reported(self) -> frozenset[Report]:
        """Return what was taken until now."""
        return frozenset(self.taken)

    def _find_due(self, entries: Sequence[Entry]) -> list[tuple[Entry, str]]:
        found: list[tuple[Entry, str]] = []
        for entry in entries:
            planned = self.planned[entry.instruction_id]
            status = _status_of(entry, planned)
            if status is not None and self.taken[entry.outbox_id, status] < planned.reports:
                found.append((entry, status))
        return found

    async def _send(self, client: httpx.AsyncClient, entry: Entry, status: str) -> None:
        body = msgspec.json.encode(
            {
                "rail_type": self.rail_type,
                "outbox_id": entry.outbox_id,
                "amount": entry.amount,
                "currency": entry.currency,
                "reference": entry.reference,
                "status": status,
                "code": entry.code,
            }
        )
        headers = {
            "Content-Type": "application/json",
            "Penstock-Signature": sign(SECRET, body, at=int(time.time())),
        }
        answer = await client.post(f"{self.url}/outbox/results", content=body, headers=headers)
        if answer.status_code == TAKEN:
            self.taken[entry.outbox_id, status] += 1
            self.note("report", status)
            self.note("report", answer.json()["outcome"])
        elif answer.status_code < AWAY_MIN:
            self.wrongs.append(f"a report of {entry.instruction_id} was refused: {answer.text}")
            self.taken[entry.outbox_id, status] += 1


def _status_of(entry: Entry, planned: Planned) -> str | None:
    match entry.code:
        case "PAID":
            return planned.reported_paid
        case "SETTLED" | "RETURNED":
            return entry.code.lower()
        case "REJECTED":
            return "refused"
        case _:
            return None  # Accepted, and not decided yet.
