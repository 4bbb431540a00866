"""Shared steps of the tests of slots over HTTP."""

import itertools
import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from typing import Any

from httpx import AsyncClient, Response

SLOTS = "/api/v1/slots"
CONFIG = "/admin/rate-limit/config"
LINES = {"Content-Type": "application/x-ndjson"}

MICROSECOND = timedelta(microseconds=1)
MILLISECOND = timedelta(milliseconds=1)
SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Two days ahead, since a time in the past means now. Windows of 4 s begin there.
NOON = datetime.combine(datetime.now(UTC).date() + 2 * DAY, time(12), tzinfo=UTC)

Json = dict[str, Any]

_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """A config of one test, with events of its own."""

    client: AsyncClient
    name: str

    def request(self, event: str, at: datetime = NOON) -> Json:
        """Return the body of a request."""
        return {
            "eventId": self.event(event),
            "configName": self.name,
            "requestedTime": text_of(at),
        }

    def event(self, event: str) -> str:
        return f"{self.name}-{event}"

    async def assign(self, event: str, at: datetime = NOON) -> Json:
        """Assign a slot to an event."""
        return body_of(await self.client.post(SLOTS, json=self.request(event, at)))

    async def fill(self, count: int, at: datetime = NOON, *, name: str = "filler") -> list[Json]:
        """Assign slots to many events in one call, and return them in order."""
        wanted = [self.request(f"{name}-{number}", at) for number in range(count)]
        return await self.assign_all(wanted)

    async def assign_all(self, wanted: Iterable[Json]) -> list[Json]:
        lines = "\n".join(json.dumps(each) for each in wanted)
        response = await self.client.post(f"{SLOTS}/batch", content=lines, headers=LINES)
        assert response.status_code == 200, response.text
        results = [json.loads(line) for line in response.text.splitlines()]
        assert {each["outcome"] for each in results} == {"assigned"}
        return results

    async def show(self, event: str) -> Json:
        """Return an event's slot in full."""
        return body_of(await self.client.get(f"{SLOTS}/{self.event(event)}"))

    async def list_all(self) -> list[Json]:
        """Return all slots, by time."""
        query = {"configName": self.name, "limit": "1000"}
        return body_of(await self.client.get(SLOTS, params=query))["slots"]

    async def change(self, **fields: Any) -> Json:
        """Create a new version and return it."""
        body = {"configName": self.name} | fields
        return body_of(await self.client.post(CONFIG, json=body), 201)


async def make_config(
    client: AsyncClient, per_window: int = 4, size: str = "PT4S", **more: Any
) -> Config:
    """Create a config with a unique name and, by default, a slot each second."""
    config = Config(client=client, name=f"c{next(_numbers)}")
    await config.change(maxPerWindow=per_window, windowSize=size, **more)
    return config


def body_of(response: Response, status: int = 200) -> Any:
    """Return the JSON of a response with the expected status."""
    assert response.status_code == status, response.text
    return response.json()


def after(seconds: float) -> datetime:
    """Return an instant after noon."""
    return NOON + timedelta(seconds=seconds)


def offset_of(slot: Json) -> float:
    """Return how many seconds after noon a slot is."""
    return (instant_of(slot["scheduledTime"]) - NOON).total_seconds()


def text_of(at: datetime) -> str:
    return at.isoformat().replace("+00:00", "Z")


def instant_of(text: str) -> datetime:
    return datetime.fromisoformat(text)
