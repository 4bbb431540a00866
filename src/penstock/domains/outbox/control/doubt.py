"""What ends an instruction that was paid, or may have been; the refusals of other verbs name it."""

from penstock.domains.outbox.control.held_reason import AWAITS_APPROVAL, SUSPENDED
from penstock.domains.outbox.control.instruction_facts import InstructionFacts
from penstock.domains.outbox.ending import UNKNOWN_PREFIX
from penstock.domains.outbox.errors import DecisionRefused, ResultUnknown
from penstock.kernel.inspect import ItemView

LOST = "lost"  # The kernel's reason for an item whose worker died.

USE_RESOLVE = "use penstock outbox resolve"
USE_RELEASE = "use penstock outbox release, which has the rail asked before anything is sent"
WAIT = (
    "its next attempt asks the rail, and penstock outbox resolve decides what that leaves open; "
    "penstock outbox suspend keeps it from being sent meanwhile"
)


def refuse_doubt(facts: InstructionFacts, item: ItemView | None) -> ResultUnknown:
    """Return the refusal of a verb that would end an instruction in doubt as failed."""
    return ResultUnknown(str(facts.outbox_id), name_way(item))


def name_way(item: ItemView | None) -> str:
    """Return what a person can do about an instruction in doubt.

    Only what is held because of the doubt can be resolved, as the view outbox_unknown has it.
    """
    if item is None or item.state not in {"held", "dead"}:
        return WAIT
    return USE_RESOLVE if _is_open(item) else USE_RELEASE


def refuse_paid(facts: InstructionFacts, item: ItemView | None) -> DecisionRefused:
    """Return the refusal of a verb that would end a paid instruction as failed."""
    ends = f"{_name_end(item)} ends it as dispatched, without another call"
    return DecisionRefused(str(facts.outbox_id), f"was paid; {ends}")


def _name_end(item: ItemView | None) -> str:
    """Return what ends a paid instruction. A control holds again what is only released."""
    if item is None or item.state not in {"held", "dead"}:
        return "its next attempt"
    if _is_open(item):
        return "the reconciler, by itself and within minutes,"
    reason = (item.reason or "") if item.state == "held" else ""
    if reason.startswith(AWAITS_APPROVAL):
        return "penstock outbox approve"
    if reason.startswith(SUSPENDED):
        return "penstock outbox resume"
    return "penstock outbox release"


def _is_open(item: ItemView) -> bool:
    reason = item.reason or ""
    return item.state == "held" and (reason == LOST or reason.startswith(UNKNOWN_PREFIX))
