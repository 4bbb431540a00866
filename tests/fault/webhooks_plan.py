"""What the crash test of webhooks sends, where, and how the receiver answers. Pure, by a seed.

Producer, receiver and proof each compute it from the seed, independently of Penstock.
"""

import base64
import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

TYPES = ("order.paid", "order.sent", "user.made", "user.gone")
ACCOUNTS = 200  # The order keys of the ordered subscription.
ORDERED = "/ordered"
FAILING_PATH = "/users"
# Six attempts, and then dead. A kill may cost a delivery that would succeed two of them.
FAILING_SCHEDULE = [0.3, 0.6, 1.0, 1.0, 1.0]

# Permits of killed workers expire after half a minute, which with so many kills would exhaust any
# semaphore of a usual size; one subscription has such a size.
WIDE = 2_000
NARROW = 100

Disposition = Literal["accepted", "refused", "failing"]
Behaviour = Literal[
    "accept", "delay", "refuse", "fail", "disconnect", "retry now", "retry later", "ignore"
]

REFUSED_OF_1000 = 5
FAILING_OF_1000 = 1  # Five failures in a row open the breaker of the endpoint for half a minute.
# Of a million requests of deliveries that succeed in the end. A Retry-After stops the whole
# endpoint, so it is rare; so is no answer, which takes until the timeout.
BEHAVIOURS: Sequence[tuple[int, Behaviour]] = (
    (20_000, "fail"),
    (10_000, "disconnect"),
    (10_000, "retry now"),
    (150_000, "delay"),
    (300, "retry later"),
    (200, "ignore"),
)


@dataclass(frozen=True, slots=True)
class Event:
    """An event; `position` is that in its account, whose events one producer sends in order."""

    id: str
    type: str
    account: int
    position: int
    amount: int

    @property
    def body(self) -> dict[str, Any]:
        data = {
            "account": f"account-{self.account}",
            "position": self.position,
            "amount": self.amount,
        }
        return {"id": self.id, "type": self.type, "data": data}


SUBSCRIPTIONS: dict[str, dict[str, Any]] = {
    "/orders": {"event_types": ["order.*"], "concurrency": WIDE},
    "/paid": {
        "event_types": ["order.paid"],
        "filter": {"amount": {"gte": 50}},
        "concurrency": NARROW,
    },
    "/sent": {"event_types": ["order.sent"], "concurrency": WIDE},
    FAILING_PATH: {
        "event_types": ["user.*"],
        "concurrency": WIDE,
        "retry_schedule_seconds": FAILING_SCHEDULE,
    },
    "/large": {
        "event_types": ["*"],
        "filter": {"amount": {"gte": 90}},
        "concurrency": WIDE,
    },
    ORDERED: {"event_types": ["order.*"], "ordering_key": "account", "concurrency": WIDE},
}


def plan_streams(seed: int, *, events: int, streams: int) -> list[list[Event]]:
    """Return the events of each producer; one producer has all events of an account."""
    chance = random.Random(seed)
    planned: list[list[Event]] = [[] for _ in range(streams)]
    positions = [0] * ACCOUNTS
    for number in range(events):
        account = chance.randrange(ACCOUNTS)
        event = Event(
            id=f"evt_{number}",
            type=chance.choice(TYPES),
            account=account,
            position=positions[account],
            amount=chance.randrange(100),
        )
        positions[account] += 1
        planned[account % streams].append(event)
    return planned


def paths_of(event: Event) -> list[str]:
    """Return the paths of the subscriptions that an event matches."""
    paths = ["/large"] if event.amount >= 90 else []
    match event.type:
        case "order.paid":
            paths += ["/orders", ORDERED, *(["/paid"] if event.amount >= 50 else [])]
        case "order.sent":
            paths += ["/orders", ORDERED, "/sent"]
        case _:
            paths.append(FAILING_PATH)
    return paths


def disposition_of(seed: int, path: str, event_id: str) -> Disposition:
    """Return how a delivery must end."""
    drawn = _draw(seed, path, event_id) % 1000
    if drawn < REFUSED_OF_1000:
        return "refused"
    if path == FAILING_PATH and drawn < REFUSED_OF_1000 + FAILING_OF_1000:
        return "failing"
    return "accepted"


def behaviour_of(seed: int, path: str, event_id: str, *, number: int) -> Behaviour:
    """Return what the receiver does with one request of a delivery; `number` counts from 1."""
    match disposition_of(seed, path, event_id):
        case "refused":
            return "refuse"
        case "failing":
            return "fail"
        case "accepted":
            drawn = _draw(seed, path, event_id, number=number) % 1_000_000
            for share, behaviour in BEHAVIOURS:
                if drawn < share:
                    return behaviour
                drawn -= share
            return "accept"


def secret_of(path: str) -> str:
    """Return the secret of a path's subscription."""
    return "whsec_" + base64.b64encode(hashlib.sha256(path.encode()).digest()).decode()


def _draw(seed: int, path: str, event_id: str, *, number: int = 0) -> int:
    text = f"{seed} {path} {event_id} {number}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())
