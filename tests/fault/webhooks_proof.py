"""What must be true of all deliveries after any crash: asked of the database and the receiver.

The two know nothing of each other. What the receiver has seen is in its record, one line for each
request; what the database knows of an attempt was written when it ended, or when it was given up.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import LiteralString, TypeAlias

from penstock.postgres.pool import Pool, Row
from tests.fault.webhooks_plan import (
    DOOMED_SCHEDULE,
    ORDERED,
    Disposition,
    Event,
    disposition_of,
    wanted_at,
)
from tests.fault.webhooks_stage import Kill, Place

TAKEN, REFUSED, FAILING = 200, 400, 500
PLANNED = {0, TAKEN, REFUSED, FAILING, 429}
# On a busy machine: until a good answer is written down, and until PostgreSQL or the receiver reads
# what a process had sent before it was killed.
SETTLE_SECONDS = 2.0
READ_SECONDS = 1.0
LOOKED_AT = 1_000  # Events of which the status is asked; that takes a millisecond each.

DELIVERIES: LiteralString = """
SELECT event.event_id, regexp_replace(subscription.url, '^http://[^/]*', '') AS path, d.item_id,
    dead.reason AS death, tried.*
FROM penstock.webhook_event AS event
JOIN penstock.webhook_delivery AS d USING (event_no)
JOIN penstock.webhook_subscription AS subscription USING (subscription_no)
LEFT JOIN penstock.dead ON dead.id = d.item_id
CROSS JOIN LATERAL (
    SELECT count(*) AS rows, coalesce(max(attempt), 0) AS last_attempt,
        count(*) FILTER (WHERE outcome = 'done') AS done,
        max(attempt) FILTER (WHERE outcome IN ('done', 'dead')) AS ended_with,
        count(*) FILTER (WHERE outcome <> 'snooze') AS attempts,
        count(*) FILTER (WHERE outcome = 'lost') AS lost
    FROM penstock.attempt
    WHERE attempt.item_id = d.item_id
) AS tried
"""
LOST: LiteralString = """
SELECT item_id, claimed_at, settled_at, split_part(worker, ':', 2)::integer AS pid
FROM penstock.attempt
LEFT JOIN held_lease USING (token)
WHERE outcome = 'lost'
"""
STATUSES: LiteralString = "SELECT id, status FROM penstock.events WHERE id = ANY ($1::text[])"

Name: TypeAlias = tuple[str, str]  # The path and the event of a delivery.


@dataclass(frozen=True, slots=True)
class Request:
    """A request as the receiver saw it; the numbers are of its ticking clock."""

    status: int
    arrived: int
    answered: int
    arrived_at: float
    answered_at: float


@dataclass(frozen=True, slots=True)
class Loss:
    """An attempt that was given up because its lease had expired, and the kills to explain it."""

    claimed_at: float
    given_up_at: float
    kills: Sequence[Kill]


@dataclass(slots=True)
class Evidence:
    """All there is to classify by."""

    seed: int
    events: Sequence[Event]
    requests: Mapping[Name, Sequence[Request]]
    deliveries: Mapping[Name, Row]
    losses: Mapping[Name, Sequence[Loss]]
    statuses: Mapping[str, str]  # As people see them, of some events.
    dispositions: dict[Name, Disposition] = field(init=False)

    def __post_init__(self) -> None:
        self.dispositions = {
            (path, event.id): disposition_of(self.seed, path, event.id)
            for event in self.events
            for path in wanted_at(event)
        }

    def taken(self, name: Name) -> list[Request]:
        """Return the requests that were answered well, in the order of the answers."""
        return [each for each in self.requests[name] if each.status == TAKEN]

    def repeats(self) -> Iterator[tuple[Name, Request, Request]]:
        """Yield each request that came after a good answer to the same delivery, with that."""
        for name, requests in self.requests.items():
            taken = self.taken(name) if len(requests) > 1 else []
            for repeat in requests:
                before = [each for each in taken if each.answered < repeat.arrived]
                if before:
                    yield name, before[-1], repeat


async def gather_evidence(
    pool: Pool, record: Path, *, seed: int, events: Sequence[Event], kills: Sequence[Kill]
) -> Evidence:
    """Read the record and the database; everything must be at rest."""
    requests: defaultdict[Name, list[Request]] = defaultdict(list)
    for line in record.read_text(encoding="ascii").splitlines():
        path, event_id, status, arrived, answered, arrived_at, answered_at = line.split()
        requests[path, event_id].append(
            Request(int(status), int(arrived), int(answered), float(arrived_at), float(answered_at))
        )
    rows = await pool.fetch(DELIVERIES)
    deliveries = {(row["path"], row["event_id"]): row for row in rows}
    assert len(deliveries) == len(rows), "nothing was enqueued twice"
    names = {row["item_id"]: name for name, row in deliveries.items()}
    losses: defaultdict[Name, list[Loss]] = defaultdict(list)
    for row in await pool.fetch(LOST):
        losses[names[row["item_id"]]].append(_to_loss(row, kills))
    looked_at = [event.id for event in events[:: max(1, len(events) // LOOKED_AT)]]
    statuses = {row["id"]: row["status"] for row in await pool.fetch(STATUSES, looked_at)}
    assert len(statuses) == len(looked_at)
    return Evidence(seed, events, requests, deliveries, losses, statuses)


def assert_every_delivery_has_ended_as_it_must(evidence: Evidence) -> None:
    """Nothing that was accepted is missing, and what is dead has the reason that it died of."""
    assert not evidence.deliveries.keys() ^ evidence.dispositions.keys()
    assert not evidence.requests.keys() ^ evidence.dispositions.keys()
    for name, disposition in evidence.dispositions.items():
        row = evidence.deliveries[name]
        statuses = [request.status for request in evidence.requests[name]]
        where = (name, disposition, dict(row.items()), statuses)
        assert row["rows"] == row["last_attempt"] == row["ended_with"], where
        tried = row["attempts"] - row["lost"]
        match disposition:
            case "taken":
                assert (row["done"], row["death"]) == (1, None), where
                assert TAKEN in statuses, where
            case "refused":
                assert (row["done"], row["death"]) == (0, "HTTP 400"), where
                assert tried == 1, where
                assert set(statuses) <= {REFUSED, 0}, where
            case "doomed":
                assert (row["done"], row["death"]) == (0, "HTTP 500"), where
                allowed = len(DOOMED_SCHEDULE) + 1
                assert tried <= allowed <= row["attempts"], where
                assert set(statuses) <= {FAILING, 0}, where


def assert_every_event_shows_how_it_ended(evidence: Evidence) -> None:
    """An event is delivered, failed or partly so, as its deliveries are."""
    events = {event.id: event for event in evidence.events}
    for event_id, status in evidence.statuses.items():
        paths = wanted_at(events[event_id])
        taken = sum(evidence.dispositions[path, event_id] == "taken" for path in paths)
        expected = "failed" if taken == 0 else "delivered" if taken == len(paths) else "partly"
        assert status == expected, (event_id, paths)


def assert_every_request_was_signed(evidence: Evidence) -> None:
    seen = {each.status for requests in evidence.requests.values() for each in requests}
    assert seen <= PLANNED
    assert {TAKEN, REFUSED, FAILING, 429} <= seen, "the receiver was as flaky as planned"


def assert_only_what_was_in_flight_at_a_kill_is_repeated(evidence: Evidence) -> None:
    """An attempt is given up only if its own worker, or the database, was killed under it.

    And a delivery is repeated after a good answer only if the attempt that got the answer was
    given up: the kill came while that request was under way, or before its end was written down.
    """
    unexplained = {
        name: losses
        for name, losses in evidence.losses.items()
        if not all(loss.kills for loss in losses)
    }
    assert not unexplained, unexplained
    for name, requests in evidence.requests.items():
        row = evidence.deliveries[name]
        answered = sum(request.status != 0 for request in requests)
        assert answered <= row["attempts"], (name, "more requests than attempts")
        assert len(evidence.taken(name)) - row["done"] <= row["lost"], name
    for name, before, repeat in evidence.repeats():
        kills = [kill for loss in evidence.losses[name] for kill in loss.kills]
        assert any(_fell_between(kill, before, repeat) for kill in kills), (name, before, repeat)


def assert_nobody_ended_unasked(places: Sequence[Place]) -> None:
    """Whoever is at work, or about to be, outlives the crash of another."""
    for place in places:
        assert not place.ends, (place.log.name, place.ends)


def assert_order_is_kept(evidence: Evidence) -> None:
    """Nothing of an account is sent before all that precedes it there was taken, or refused.

    So a retry is not overtaken, and first good answers come in the order in which the producer
    was told of the acceptance. What a kill lets be sent again may come later: it is no news.
    """
    lines: defaultdict[int, list[Event]] = defaultdict(list)
    for event in evidence.events:
        if ORDERED in wanted_at(event):
            lines[event.account].append(event)
    for line in lines.values():
        line.sort(key=lambda event: event.place)
        for earlier, later in pairwise(line):
            ended = min(
                request.answered
                for request in evidence.requests[ORDERED, earlier.id]
                if request.status in (TAKEN, REFUSED)
            )
            began = min(request.arrived for request in evidence.requests[ORDERED, later.id])
            assert ended < began, (earlier, later)


def _to_loss(row: Row, kills: Sequence[Kill]) -> Loss:
    """Find the kill of the worker that held the item, and those of the database meanwhile."""
    claimed_at, given_up_at = row["claimed_at"].timestamp(), row["settled_at"].timestamp()
    explaining = [
        kill
        for kill in kills
        if claimed_at - READ_SECONDS <= kill.at <= given_up_at
        and (kill.kind == "postgres" or (kill.kind == "worker" and kill.pid == row["pid"]))
    ]
    return Loss(claimed_at, given_up_at, explaining)


def _fell_between(kill: Kill, before: Request, repeat: Request) -> bool:
    return (
        before.arrived_at <= kill.over_at + READ_SECONDS
        and kill.at <= before.answered_at + SETTLE_SECONDS
        and kill.at <= repeat.arrived_at
    )
