"""What one seed chooses: instructions, the rail, and what fails. Pure: a seed has one plan."""

import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import penstock.domains.outbox
from penstock.domains.outbox.rails.simulator.order import Moment

# `key`: the rail recognises keys. `query`: it books every request, and "not found" is final after a
# while. `both`, and `neither`: only a person can decide there.
Mode = Literal["key", "query", "both", "neither"]
How = Literal["kill", "stop"]
MOMENTS: Sequence[Moment] = ("before_booking", "after_booking")

MODES: Sequence[Mode] = ("key", "query", "both", "neither")
MODE_WEIGHTS = (3, 3, 2, 2)

TIMEOUT_SECONDS = 1.0  # Of the rail; the shortest that a rail may have.
SLOW_SECONDS = 1.3  # A slow request is booked, or answered, after the timeout.
# After a request has ended, "not found" is final, and a person may decide: a slow request was
# booked long before, also on a busy machine.
FINAL_SECONDS = 1.5
# A stop ends after the lease, which has one second, or after another worker has sent the
# instruction again: the lease, the timeout and FINAL_SECONDS later.
STOPS_SECONDS = ((1.3, 2.2), (5.0, 6.0))
SKEW_MINUTES = (-30, -7, 7, 30)
WORKERS = 2

# A query is made about instructions that were tried before, a decision where the rail allows one.
CALL_LABELS = ("before_fence", "after_fence", "before_send", "after_send")
QUERY_LABELS = ("before_query", "before_reconcile_query")
DECISION_LABELS = ("before_resolve", "before_resolve_commit", "after_resolve")


def find_labels() -> list[str]:
    """Return the labels of all points at which the outbox calls its probe, from its source."""
    folder = Path(penstock.domains.outbox.__path__[0])
    texts = [path.read_text(encoding="utf-8") for path in sorted(folder.rglob("*.py"))]
    return sorted({label for text in texts for label in re.findall(r'\.probe\("(\w+)"\)', text)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What happens to a worker when it has reached a label `skip` times before."""

    how: How
    label: str
    skip: int
    seconds: float = 0.0  # How long it is stopped.


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """One process of a worker, with its fault, and how far its own clock is off."""

    fault: Fault | None = None
    skew_minutes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """One instruction. `simulate` is how the simulator treats it, `crash` when it ends with it.

    It is sent `senders` times at once, and once more later if `is_repeated`. If `has_rival`, the
    same key is also sent with another amount.
    """

    name: str
    participant: str
    amount: str
    simulate: dict[str, Any] | None
    crash: Moment | None
    senders: int
    is_repeated: bool
    has_rival: bool
    wait_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything that a seed chooses. Lists of seconds count from the start of the run."""

    seed: int
    mode: Mode
    instructions: Sequence[Planned]
    workers: Sequence[Sequence[Life]]
    simulator_kills: Sequence[float]
    postgres_restart: float | None
    postgres_signal: Literal["kill", "fast"]


def describe(plan: Plan) -> str:
    """Return a plan as text: what is usual of an instruction is left out."""
    lines = [
        f"seed {plan.seed}, rail {plan.mode}, {len(plan.instructions)} instructions",
        *(
            f"worker {number}: {life}"
            for number, lives in enumerate(plan.workers)
            for life in lives
        ),
        f"simulator killed at {plan.simulator_kills}",
        f"postgres restarted at {plan.postgres_restart} ({plan.postgres_signal})",
    ]
    for each in plan.instructions:
        words = [each.name, each.participant, str(each.simulate or "")]
        words += [f"crash {each.crash}"] if each.crash else []
        words += [f"sent {each.senders} times"] if each.senders > 1 else []
        words += ["repeated"] if each.is_repeated else []
        words += ["rival"] if each.has_rival else []
        lines.append(" ".join(filter(None, words)))
    return "\n".join(lines)


def count_chosen(plan: Plan) -> Counter[str]:
    """Return how often a plan has each fault that needs no label."""
    found = Counter[str]()
    for each in plan.instructions:
        order = each.simulate or {}
        found[f"reply lost {order.get('lose')}"] += "lose" in order
        found["request slow"] += "delay_seconds" in order
        found["reply slow"] += "reply_delay_seconds" in order
        found[f"answered {order.get('code')}"] += "code" in order
        found["simulator crashed by a payment"] += each.crash is not None
        found["sent several times at once"] += each.senders > 1
        found["sent again later"] += each.is_repeated
        found["other amount under the same key"] += each.has_rival
    for lives in plan.workers:
        found["worker with a wrong clock"] += sum(life.skew_minutes != 0 for life in lives)
    return +found


def make_plan(seed: int) -> Plan:
    """Return the plan of a seed."""
    chance = random.Random(seed)
    mode = chance.choices(MODES, MODE_WEIGHTS)[0]
    participants = [f"p{number}" for number in range(chance.randint(3, 5))]
    labels = _labels_of(mode)
    return Plan(
        seed=seed,
        mode=mode,
        instructions=[
            _instruction(chance, f"{seed}-{number}", participants=participants, mode=mode)
            for number in range(chance.randint(15, 40))
        ],
        workers=[
            [Life(fault=_aimed(seed, labels)), *_lives(chance, labels)],
            *(_lives(chance, labels) for _ in range(WORKERS - 1)),
        ],
        simulator_kills=_instants(chance, count=chance.choice([0, 0, 1, 2])),
        postgres_restart=chance.uniform(0.2, 1.5) if chance.random() < 0.15 else None,
        postgres_signal=chance.choice(["kill", "fast"]),
    )


def _labels_of(mode: Mode) -> list[str]:
    """Return the labels that workers reach; the rarer ones twice."""
    has_query = mode in {"query", "both"}
    found = [label for label in find_labels() if has_query or label not in QUERY_LABELS]
    if mode == "neither":
        return [label for label in found if label not in DECISION_LABELS]
    return found + [label for label in found if label in QUERY_LABELS + DECISION_LABELS]


def _instruction(
    chance: random.Random, name: str, *, participants: Sequence[str], mode: Mode
) -> Planned:
    is_odd = chance.random() < (0.12 if mode == "neither" else 0.35)
    return Planned(
        name=name,
        participant=chance.choice(participants),
        amount=f"{chance.randint(1, 999)}.{chance.randint(0, 99):02d}",
        simulate=_order(chance) if is_odd else None,
        crash=chance.choice(MOMENTS) if chance.random() < 0.02 else None,
        senders=chance.choice([1, 1, 1, 1, 2, 3]),
        is_repeated=chance.random() < 0.15,
        has_rival=chance.random() < 0.05,
        wait_seconds=chance.choice([0, 0, 0, 0, 0, 0.05, 0.2]),
    )


def _order(chance: random.Random) -> dict[str, Any]:
    orders: list[tuple[int, dict[str, Any]]] = [
        (6, {"lose": "before_booking"}),
        (8, {"lose": "after_booking"}),
        (6, {"code": "BUSY", "times": chance.randint(1, 2)}),
        (2, {"delay_seconds": SLOW_SECONDS}),
        (2, {"reply_delay_seconds": SLOW_SECONDS}),
        (1, {"code": "REJECTED"}),
        (1, {"code": "REJECTED", "lose": "after_booking"}),
        (2, {"code": "ACCEPTED"}),
        (1, {"code": "ACCEPTED", "lose": "after_booking"}),
    ]
    return chance.choices([order for _, order in orders], [weight for weight, _ in orders])[0]


def _lives(chance: random.Random, labels: Sequence[str]) -> list[Life]:
    """Return a worker's processes: some that fail, and a last one that does not."""
    lives = [
        Life(fault=_fault(chance, labels), skew_minutes=_skew(chance))
        for _ in range(chance.choice([0, 1, 1, 2]))
    ]
    return [*lives, Life(skew_minutes=_skew(chance))]


def _aimed(seed: int, labels: Sequence[str]) -> Fault:
    """Return a kill at one label after the other, so that a few dozen seeds reach them all."""
    return Fault(how="kill", label=labels[seed % len(labels)], skip=0)


def _fault(chance: random.Random, labels: Sequence[str]) -> Fault:
    how: How = "stop" if chance.random() < 0.3 else "kill"
    # A stop around the call is the worst one: the call may be late.
    label = chance.choice([*labels, *CALL_LABELS * 3] if how == "stop" else labels)
    skip = chance.randint(0, 20 if label == "before_unknown" else 6)
    if label in QUERY_LABELS + DECISION_LABELS:
        skip = chance.randint(0, 1)
    seconds = chance.uniform(*chance.choice(STOPS_SECONDS)) if how == "stop" else 0.0
    return Fault(how=how, label=label, skip=skip, seconds=seconds)


def _instants(chance: random.Random, *, count: int) -> list[float]:
    return sorted(chance.uniform(0.1, 1.5) for _ in range(count))


def _skew(chance: random.Random) -> int:
    return chance.choice(SKEW_MINUTES) if chance.random() < 0.25 else 0
