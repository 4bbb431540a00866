"""What the crash test of webhooks sends, to whom, and how the receiver answers. Pure, by a seed.

Producer, receiver and proof each read it for themselves, and none of them asks the product.
"""

import base64
import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

TYPES = ("order.paid", "order.sent", "user.made", "user.gone")
ACCOUNTS = 200  # The keys of the subscription that wants order.
ORDERED = "/ordered"
DOOMED_PATH = "/users"
# Its subscription's own: six attempts, and then dead. A kill may cost a sound delivery two of them.
DOOMED_SCHEDULE = [0.3, 0.6, 1.0, 1.0, 1.0]

# Slots of killed workers stay taken for half a minute, which with so many kills would fill any
# semaphore of a usual size; one of them is of such a size.
ROOMY = 2_000
TIGHT = 100

Disposition = Literal["taken", "refused", "doomed"]
Conduct = Literal[
    "take", "dawdle", "refuse", "fail", "hang up", "put off", "send to rest", "ignore"
]

REFUSED_OF_1000 = 5
DOOMED_OF_1000 = 1  # Five failures in a row would close the way to all for half a minute.
# Of a million requests that are to succeed in the end. A pause asked for is one for the whole
# endpoint, so it is rare; so is silence, which lasts for the timeout.
CONDUCTS: Sequence[tuple[int, Conduct]] = (
    (20_000, "fail"),
    (10_000, "hang up"),
    (10_000, "put off"),
    (150_000, "dawdle"),
    (300, "send to rest"),
    (200, "ignore"),
)


@dataclass(frozen=True, slots=True)
class Event:
    """An event. `place` is its place in its account, whose events one producer sends in order."""

    id: str
    type: str
    account: int
    place: int
    amount: int

    @property
    def body(self) -> dict[str, Any]:
        data = {"account": f"account-{self.account}", "place": self.place, "amount": self.amount}
        return {"id": self.id, "type": self.type, "data": data}


SUBSCRIPTIONS: dict[str, dict[str, Any]] = {
    "/orders": {"event_types": ["order.*"], "concurrency": ROOMY},
    "/paid": {
        "event_types": ["order.paid"],
        "filter": {"amount": {"gte": 50}},
        "concurrency": TIGHT,
    },
    "/sent": {"event_types": ["order.sent"], "concurrency": ROOMY},
    DOOMED_PATH: {
        "event_types": ["user.*"],
        "concurrency": ROOMY,
        "retry_schedule_seconds": DOOMED_SCHEDULE,
    },
    "/large": {
        "event_types": ["*"],
        "filter": {"amount": {"gte": 90}},
        "concurrency": ROOMY,
    },
    ORDERED: {"event_types": ["order.*"], "ordering_key": "account", "concurrency": ROOMY},
}


def plan_lines(seed: int, *, events: int, lines: int) -> list[list[Event]]:
    """Return the events of each producer; all of an account are one producer's."""
    chance = random.Random(seed)
    planned: list[list[Event]] = [[] for _ in range(lines)]
    places = [0] * ACCOUNTS
    for number in range(events):
        account = chance.randrange(ACCOUNTS)
        event = Event(
            id=f"evt_{number}",
            type=chance.choice(TYPES),
            account=account,
            place=places[account],
            amount=chance.randrange(100),
        )
        places[account] += 1
        planned[account % lines].append(event)
    return planned


def wanted_at(event: Event) -> list[str]:
    """Return the paths to which an event is to go."""
    paths = ["/large"] if event.amount >= 90 else []
    match event.type:
        case "order.paid":
            paths += ["/orders", ORDERED, *(["/paid"] if event.amount >= 50 else [])]
        case "order.sent":
            paths += ["/orders", ORDERED, "/sent"]
        case _:
            paths.append(DOOMED_PATH)
    return paths


def disposition_of(seed: int, path: str, event_id: str) -> Disposition:
    """Say how a delivery must end."""
    lot = _lot(seed, path, event_id) % 1000
    if lot < REFUSED_OF_1000:
        return "refused"
    if path == DOOMED_PATH and lot < REFUSED_OF_1000 + DOOMED_OF_1000:
        return "doomed"
    return "taken"


def conduct_of(seed: int, path: str, event_id: str, *, number: int) -> Conduct:
    """Say what the receiver does with the request of this number, from 1, of one delivery."""
    match disposition_of(seed, path, event_id):
        case "refused":
            return "refuse"
        case "doomed":
            return "fail"
        case "taken":
            lot = _lot(seed, path, event_id, number=number) % 1_000_000
            for share, conduct in CONDUCTS:
                if lot < share:
                    return conduct
                lot -= share
            return "take"


def secret_of(path: str) -> str:
    """Return the secret of a path's subscription."""
    return "whsec_" + base64.b64encode(hashlib.sha256(path.encode()).digest()).decode()


def _lot(seed: int, path: str, event_id: str, *, number: int = 0) -> int:
    text = f"{seed} {path} {event_id} {number}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())
