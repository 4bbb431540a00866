"""The steps of phase A as functions, in their order. Replace one to schedule in your own way:

steps = replace(STEPS, enrich=look_up_our_customer)
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from penstock.base.errors import PenstockError
from penstock.domains.payments.context import build_context
from penstock.domains.payments.enqueue import save_and_enqueue
from penstock.domains.payments.enrich import enrich
from penstock.domains.payments.payment import Draft, NewPayment, Queued
from penstock.domains.payments.persist import persist
from penstock.domains.payments.rules import apply_rules
from penstock.domains.payments.timing import determine_times
from penstock.domains.payments.validate import validate

# A step with a connection works in the caller's transaction; the instant is now.
ApplyRules: TypeAlias = Callable[
    [object, Sequence[Draft], datetime], Awaitable[Sequence[Draft | PenstockError]]
]
Persist: TypeAlias = Callable[[object, Sequence[Draft], datetime], Awaitable[frozenset[str]]]
DetermineTimes: TypeAlias = Callable[
    [object, Sequence[Draft], datetime], Awaitable[Sequence[Draft]]
]
SaveAndEnqueue: TypeAlias = Callable[
    [object, Sequence[Draft], datetime], Awaitable[Mapping[str, Queued]]
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """What phase A does with payments.

    `validate`, `enrich` and `build_context` are pure and get one payment; they raise InvalidInput.
    The others get many, with the connection, so that a batch takes few statements.
    """

    validate: Callable[[NewPayment], Draft] = validate
    enrich: Callable[[Draft], Draft] = enrich
    apply_rules: ApplyRules = apply_rules
    persist: Persist = persist
    build_context: Callable[[Draft], Draft] = build_context
    determine_times: DetermineTimes = determine_times
    save_and_enqueue: SaveAndEnqueue = save_and_enqueue


STEPS = Steps()
