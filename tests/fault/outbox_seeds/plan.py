"""What one seed chooses: instructions, the rail, and what fails. Pure: a seed has one plan."""

import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import penstock.domains.outbox
from penstock.domains.outbox.rails.simulator.order import Moment

# `key`: the rail recognises keys. `query`: it books every request, and "not found" is final after a
# while. `both`, and `neither`: only a person can decide there. `brief`: it recognises keys for a
# few seconds.
Mode = Literal["key", "query", "both", "neither", "brief"]
How = Literal["kill", "stop"]
# What operators do during faults. `resolve` is about an unknown result, and only where nobody else
# decides: what a person has read in the ledger must still be true.
Verb = Literal["stop", "suspend", "resume", "hold", "release", "skip", "resolve"]
ReportedPaid = Literal["paid", "settled"]
# What an operator does as soon as an instruction has failed: `resume` ends a suspension that it has
# caused, and `release` tries it again before that.
Remedy = Literal["release", "resume", "skip", "wait"]
MOMENTS: Sequence[Moment] = ("before_booking", "after_booking")

MODES: Sequence[Mode] = ("key", "query", "both", "neither", "brief")
MODE_WEIGHTS = (2, 3, 2, 2, 1)
KEY_MODES: frozenset[Mode] = frozenset({"key", "both", "brief"})
QUERY_MODES: frozenset[Mode] = frozenset({"query", "both"})
PERSON_MODES: frozenset[Mode] = frozenset({"neither"})
VERBS: Sequence[Verb] = ("stop", "suspend", "resume", "hold", "release", "skip", "resolve")
LASTING: frozenset[Verb] = frozenset({"stop", "suspend", "hold"})

TIMEOUT_SECONDS = 1.0  # Of the rail; the shortest that a rail may have.
SLOW_SECONDS = 1.3  # A slow request is booked, or answered, after the timeout.
# After a request has ended, "not found" is final, and a person may decide: a slow request was
# booked long before, also on a busy machine.
FINAL_SECONDS = 1.5
HIDDEN_SECONDS = 0.8  # Queries do not find a booking; the rail promises less than FINAL_SECONDS.
LATER_SECONDS = (0.2, 1.0, 2.0)  # Until a payment that was accepted is settled or returned.
BRIEF_KEY_SECONDS = 4.0  # How long keys are valid there; some repeats come later.
# A stop ends after the lease, which has one second, or after another worker has sent the
# instruction again: the lease, the timeout and FINAL_SECONDS later.
STOPS_SECONDS = ((1.3, 2.2), (5.0, 6.0))
SKEW_MINUTES = (-30, -7, 7, 30)
API_SKEW_MINUTES = (-4, 0, 0, 4)  # Reports that are signed more than 5 minutes away are refused.
WORKERS = 2
RESOLVES = 2  # During faults, of all results that are unknown then.

# A query is made about instructions that were tried before, a decision where the rail allows one.
CALL_LABELS = ("before_fence", "after_fence", "before_send", "after_send")
QUERY_LABELS = ("before_query", "before_reconcile_query")
DECISION_LABELS = ("before_resolve", "before_resolve_commit", "after_resolve")


def find_labels() -> list[str]:
    """Return the labels of all points at which the outbox may be crashed, from its source."""
    folder = Path(penstock.domains.outbox.__path__[0])
    texts = [path.read_text(encoding="utf-8") for path in sorted(folder.rglob("*.py"))]
    points = re.compile(r'\.crash_point\("(\w+)"\)')
    return sorted({label for text in texts for label in points.findall(text)})


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
    same key is also sent with another amount. If `is_renewed`, its producer sends it under another
    key, again and again until that is accepted. The rail reports it `reports` times: as
    `reported_paid` if it was paid at once, and otherwise as what became of it. `remedy` is what an
    operator does if it fails.
    """

    name: str
    participant: str
    amount: str
    simulate: dict[str, Any] | None
    crash: Moment | None
    senders: int
    is_repeated: bool
    has_rival: bool
    is_renewed: bool
    reports: int
    reported_paid: ReportedPaid
    remedy: Remedy
    wait_seconds: float

    @property
    def later(self) -> str | None:
        """What becomes of a payment that was accepted, if the simulator has carried it out."""
        return (self.simulate or {}).get("later")


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """What an operator does about a participant, or about all if that is None.

    What lasts is undone after `seconds`, or after the faults if that is None.
    """

    at: float
    verb: Verb
    participant: str | None
    seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything that a seed chooses. Lists of seconds count from the start of the run.

    If `are_returns_retryable`, the code of a return has the class `retryable`, not `terminal`: the
    rail may get the same instruction again.
    """

    seed: int
    mode: Mode
    is_asynchronous: bool
    failures_suspend: bool
    are_returns_retryable: bool
    instructions: Sequence[Planned]
    workers: Sequence[Sequence[Life]]
    acts: Sequence[Act]
    api_skew_minutes: int
    api_kills: Sequence[float]
    simulator_kills: Sequence[float]
    postgres_restart: float | None
    postgres_signal: Literal["kill", "fast"]


def describe(plan: Plan) -> str:
    """Return a plan as text: what is usual of an instruction is left out."""
    lines = [
        f"seed {plan.seed}, rail {plan.mode}, {len(plan.instructions)} instructions",
        f"asynchronous {plan.is_asynchronous}, failures suspend {plan.failures_suspend}",
        f"returns are retryable {plan.are_returns_retryable}",
        *(
            f"worker {number}: {life}"
            for number, lives in enumerate(plan.workers)
            for life in lives
        ),
        *(f"operator: {act}" for act in plan.acts),
        f"API with a clock wrong by {plan.api_skew_minutes} minutes, killed at {plan.api_kills}",
        f"simulator killed at {plan.simulator_kills}",
        f"postgres restarted at {plan.postgres_restart} ({plan.postgres_signal})",
    ]
    for each in plan.instructions:
        words = [each.name, each.participant, str(each.simulate or "")]
        words += [f"crash {each.crash}"] if each.crash else []
        words += [f"sent {each.senders} times"] if each.senders > 1 else []
        words += ["repeated"] if each.is_repeated else []
        words += ["rival"] if each.has_rival else []
        words += ["renewed"] if each.is_renewed else []
        words += [f"{each.remedy} if it fails"] if each.simulate or each.is_renewed else []
        words += [f"reported {each.reports} times ({each.reported_paid})"] if each.reports else []
        lines.append(" ".join(filter(None, words)))
    return "\n".join(lines)


def count_chosen(plan: Plan) -> Counter[str]:
    """Return how often producers repeat an instruction; what else was chosen is recorded."""
    found = Counter[str]()
    for each in plan.instructions:
        found["sent several times at once"] += each.senders > 1
        found["sent again later"] += each.is_repeated
        found["other amount under the same key"] += each.has_rival
    return +found


def name_faults(order: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of what an order to the simulator lets happen."""
    for field in ("lose", "crash"):
        if order.get(field):
            yield f"{field}_{order[field]}"
    for field in ("delay_seconds", "reply_delay_seconds", "hidden_seconds"):
        if order.get(field):
            yield field.removesuffix("_seconds")
    if order.get("later"):
        yield f"later_{order['later']}"
    if order.get("code", "PAID") != "PAID":
        yield f"code_{order['code']}"


# What `name_faults` yields for the orders of plans, and a query that finds nothing for that reason.
ORDER_FAULTS = (
    "lose_before_booking", "lose_after_booking", "crash_before_booking", "crash_after_booking",
    "delay", "reply_delay", "hidden", "query_of_hidden", "later_SETTLED", "later_RETURNED",
    "code_ACCEPTED", "code_BUSY", "code_REJECTED",
)  # fmt: skip


def make_plan(seed: int) -> Plan:
    """Return the plan of a seed."""
    chance = random.Random(seed)
    mode = chance.choices(MODES, MODE_WEIGHTS)[0]
    participants = [f"p{number}" for number in range(chance.randint(3, 5))]
    labels = _labels_of(mode)
    # A rail that recognises keys would answer a repeat with the same return, again and again.
    are_returns_retryable = mode == "query" and chance.random() < 0.4
    return_weight = 8 if are_returns_retryable else 2
    return Plan(
        seed=seed,
        mode=mode,
        is_asynchronous=chance.random() < 0.5,
        failures_suspend=chance.random() < 0.4,
        are_returns_retryable=are_returns_retryable,
        instructions=[
            _instruction(
                chance,
                f"{seed}-{number}",
                participants=participants,
                mode=mode,
                return_weight=return_weight,
            )
            for number in range(chance.randint(12, 26))
        ],
        workers=[
            [Life(fault=_aimed(seed, labels)), *_lives(chance, labels)],
            *(_lives(chance, labels) for _ in range(WORKERS - 1)),
        ],
        acts=[
            *(_act(chance, participants) for _ in range(chance.randint(1, 5))),
            *(_resolve(chance) for _ in range(RESOLVES if mode in PERSON_MODES else 0)),
        ],
        api_skew_minutes=chance.choice(API_SKEW_MINUTES),
        api_kills=_instants(chance, count=chance.choice([0, 0, 0, 1])),
        simulator_kills=_instants(chance, count=chance.choice([0, 0, 1, 2])),
        postgres_restart=chance.uniform(0.2, 1.5) if chance.random() < 0.15 else None,
        postgres_signal=chance.choice(["kill", "fast"]),
    )


def _labels_of(mode: Mode) -> list[str]:
    """Return the labels that workers reach; the rarer ones twice."""
    has_query = mode in QUERY_MODES
    found = [label for label in find_labels() if has_query or label not in QUERY_LABELS]
    if mode == "neither":
        return [label for label in found if label not in DECISION_LABELS]
    return found + [label for label in found if label in QUERY_LABELS + DECISION_LABELS]


def _instruction(
    chance: random.Random,
    name: str,
    *,
    participants: Sequence[str],
    mode: Mode,
    return_weight: int,
) -> Planned:
    is_odd = chance.random() < (0.15 if mode == "neither" else 0.35)
    order = _order(chance, return_weight=return_weight) if is_odd else None
    may_fail = order is not None and (order.get("code"), order.get("later")) in MAY_FAIL
    return Planned(
        name=name,
        participant=chance.choice(participants),
        amount=f"{chance.randint(1, 999)}.{chance.randint(0, 99):02d}",
        simulate=order,
        crash=chance.choice(MOMENTS) if chance.random() < 0.02 else None,
        senders=chance.choice([1, 1, 1, 1, 2, 3]),
        is_repeated=chance.random() < 0.15,
        has_rival=chance.random() < 0.05,
        is_renewed=chance.random() < (0.5 if may_fail else 0.05),
        reports=chance.choice([0, 0, 0, 1, 2]),
        reported_paid=chance.choice(["paid", "settled"]),
        remedy=chance.choice(["release", "release", "resume", "skip", "wait"]),
        wait_seconds=chance.choice([0, 0, 0, 0, 0, 0.05, 0.2]),
    )


# The code and what comes later of orders after which an instruction may be sent under another key.
MAY_FAIL = {("REJECTED", None), ("ACCEPTED", "RETURNED")}


def _order(chance: random.Random, *, return_weight: int) -> dict[str, Any]:
    later_seconds = chance.choice(LATER_SECONDS)
    settled = {"code": "ACCEPTED", "later": "SETTLED", "later_seconds": later_seconds}
    returned = {"code": "ACCEPTED", "later": "RETURNED", "later_seconds": later_seconds}
    orders: list[tuple[int, dict[str, Any]]] = [
        (6, {"lose": "before_booking"}),
        (5, {"lose": "after_booking"}),
        (4, {"lose": "after_booking", "hidden_seconds": HIDDEN_SECONDS}),
        (6, {"code": "BUSY", "times": chance.randint(1, 2)}),
        (2, {"delay_seconds": SLOW_SECONDS}),
        (2, {"reply_delay_seconds": SLOW_SECONDS}),
        (2, {"code": "REJECTED"}),
        (1, {"code": "REJECTED", "lose": "after_booking"}),
        (1, {"code": "ACCEPTED"}),
        (1, {"code": "ACCEPTED", "lose": "after_booking"}),
        (2, settled),
        (1, settled | {"lose": "after_booking"}),
        (return_weight, returned),
        (1, returned | {"lose": "after_booking"}),
    ]
    return chance.choices([order for _, order in orders], [weight for weight, _ in orders])[0]


def _act(chance: random.Random, participants: Sequence[str]) -> Act:
    verb: Verb = chance.choice([verb for verb in VERBS if verb != "resolve"])
    may_be_all = verb == "stop" and chance.random() < 0.5
    seconds = chance.uniform(0.2, 1.5)
    if verb in {"suspend", "hold"} and chance.random() < 0.3:
        seconds = None
    return Act(
        at=chance.uniform(0.1, 4.0),
        verb=verb,
        participant=None if may_be_all else chance.choice(participants),
        seconds=seconds if verb in LASTING else None,
    )


def _resolve(chance: random.Random) -> Act:
    return Act(at=chance.uniform(1.5, 5.0), verb="resolve", participant=None, seconds=None)


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
    return chance.choice(SKEW_MINUTES) if chance.random() < 0.3 else 0
