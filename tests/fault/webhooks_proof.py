"""What must be true of all deliveries after any crash, by the database and the receiver.

The two are independent. The record of the receiver has one line for each request; an attempt in
the database was written when it ended, or when its lease expired.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import LiteralString, TypeAlias

from penstock.postgres.pool import Pool, Row
from tests.fault.webhooks_harness import Kill, Supervised
from tests.fault.webhooks_plan import (
    FAILING_SCHEDULE,
    ORDERED,
    Disposition,
    Event,
    disposition_of,
    paths_of,
)

ACCEPTED, REFUSED, FAILED = 200, 400, 500
PLANNED = {0, ACCEPTED, REFUSED, FAILED, 429}
# On a busy machine: until a good answer is settled, and until PostgreSQL or the receiver reads what
# a process had sent before it was killed.
SETTLE_SECONDS = 2.0
READ_SECONDS = 1.0
STATUSES_MAX = 1_000  # Events whose status is read; that takes a millisecond each.

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
    """A request as the receiver recorded it; the whole numbers are of its counter."""

    status: int
    arrived: int
    answered: int
    arrived_at: float
    answered_at: float


@dataclass(frozen=True, slots=True)
class Loss:
    """An attempt whose lease expired, and the kills that explain it."""

    claimed_at: float
    expired_at: float
    kills: Sequence[Kill]


@dataclass(slots=True)
class Evidence:
    """The recorded requests, and deliveries, lost attempts and statuses of the database."""

    seed: int
    events: Sequence[Event]
    requests: Mapping[Name, Sequence[Request]]
    deliveries: Mapping[Name, Row]
    losses: Mapping[Name, Sequence[Loss]]
    statuses: Mapping[str, str]  # As the view `events` shows them, of some events.
    dispositions: dict[Name, Disposition] = field(init=False)

    def __post_init__(self) -> None:
        self.dispositions = {
            (path, event.id): disposition_of(self.seed, path, event.id)
            for event in self.events
            for path in paths_of(event)
        }

    def accepted(self, name: Name) -> list[Request]:
        """Return the requests that were answered with 200, in the order of the answers."""
        return [each for each in self.requests[name] if each.status == ACCEPTED]

    def repeats(self) -> Iterator[tuple[Name, Request, Request]]:
        """Yield each request after a good answer to the same delivery, and the latter."""
        for name, requests in self.requests.items():
            accepted = self.accepted(name) if len(requests) > 1 else []
            for repeat in requests:
                before = [each for each in accepted if each.answered < repeat.arrived]
                if before:
                    yield name, before[-1], repeat


async def gather_evidence(
    pool: Pool, record: Path, *, seed: int, events: Sequence[Event], kills: Sequence[Kill]
) -> Evidence:
    """Read the record and the database; nothing may be running."""
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
    sampled = [event.id for event in events[:: max(1, len(events) // STATUSES_MAX)]]
    statuses = {row["id"]: row["status"] for row in await pool.fetch(STATUSES, sampled)}
    assert len(statuses) == len(sampled)
    return Evidence(seed, events, requests, deliveries, losses, statuses)


def assert_every_delivery_has_ended_as_planned(evidence: Evidence) -> None:
    """No accepted delivery is missing, and a dead one has the expected reason."""
    assert not evidence.deliveries.keys() ^ evidence.dispositions.keys()
    assert not evidence.requests.keys() ^ evidence.dispositions.keys()
    for name, disposition in evidence.dispositions.items():
        row = evidence.deliveries[name]
        statuses = [request.status for request in evidence.requests[name]]
        where = (name, disposition, dict(row.items()), statuses)
        assert row["rows"] == row["last_attempt"] == row["ended_with"], where
        tried = row["attempts"] - row["lost"]
        match disposition:
            case "accepted":
                assert (row["done"], row["death"]) == (1, None), where
                assert ACCEPTED in statuses, where
            case "refused":
                assert (row["done"], row["death"]) == (0, "HTTP 400"), where
                assert tried == 1, where
                assert set(statuses) <= {REFUSED, 0}, where
            case "failing":
                assert (row["done"], row["death"]) == (0, "HTTP 500"), where
                allowed = len(FAILING_SCHEDULE) + 1
                assert tried <= allowed <= row["attempts"], where
                assert set(statuses) <= {FAILED, 0}, where


def assert_every_event_has_the_right_status(evidence: Evidence) -> None:
    """The status of an event follows from its deliveries: delivered, failed or partly."""
    events = {event.id: event for event in evidence.events}
    for event_id, status in evidence.statuses.items():
        paths = paths_of(events[event_id])
        count = sum(evidence.dispositions[path, event_id] == "accepted" for path in paths)
        expected = "failed" if count == 0 else "delivered" if count == len(paths) else "partly"
        assert status == expected, (event_id, paths)


def assert_every_request_was_signed(evidence: Evidence) -> None:
    seen = {each.status for requests in evidence.requests.values() for each in requests}
    assert seen <= PLANNED
    assert {ACCEPTED, REFUSED, FAILED, 429} <= seen, "the receiver was as flaky as planned"


def assert_only_attempts_in_flight_at_a_kill_are_repeated(evidence: Evidence) -> None:
    """An attempt is lost only if its worker, or the database, was killed during it.

    A delivery is repeated after a good answer only if the attempt that got the answer was lost:
    the kill came while that request was in progress, or before its outcome was settled.
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
        assert len(evidence.accepted(name)) - row["done"] <= row["lost"], name
    for name, before, repeat in evidence.repeats():
        kills = [kill for loss in evidence.losses[name] for kill in loss.kills]
        assert any(_is_between(kill, before, repeat) for kill in kills), (name, before, repeat)


def assert_no_process_ended_by_itself(processes: Sequence[Supervised]) -> None:
    """A process, also one that is starting, survives the crash of another."""
    for process in processes:
        assert not process.ends, (process.log.name, process.ends)


def assert_order_is_kept(evidence: Evidence) -> None:
    """No event of an account is sent before all earlier ones were accepted or refused.

    So no event overtakes a retry, and first good answers are in the order in which the producer
    sent the events. A repeat after a kill may come later.
    """
    streams: defaultdict[int, list[Event]] = defaultdict(list)
    for event in evidence.events:
        if ORDERED in paths_of(event):
            streams[event.account].append(event)
    for stream in streams.values():
        stream.sort(key=lambda event: event.position)
        for earlier, later in pairwise(stream):
            ended = min(
                request.answered
                for request in evidence.requests[ORDERED, earlier.id]
                if request.status in (ACCEPTED, REFUSED)
            )
            began = min(request.arrived for request in evidence.requests[ORDERED, later.id])
            assert ended < began, (earlier, later)


def _to_loss(row: Row, kills: Sequence[Kill]) -> Loss:
    """Find the kill of the worker that held the item, and those of the database meanwhile."""
    claimed_at, expired_at = row["claimed_at"].timestamp(), row["settled_at"].timestamp()
    explaining = [
        kill
        for kill in kills
        if claimed_at - READ_SECONDS <= kill.at <= expired_at
        and (kill.kind == "postgres" or (kill.kind == "worker" and kill.pid == row["pid"]))
    ]
    return Loss(claimed_at, expired_at, explaining)


def _is_between(kill: Kill, before: Request, repeat: Request) -> bool:
    return (
        before.arrived_at <= kill.over_at + READ_SECONDS
        and kill.at <= before.answered_at + SETTLE_SECONDS
        and kill.at <= repeat.arrived_at
    )
