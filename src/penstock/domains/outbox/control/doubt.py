"""Which verb decides about an instruction that may have been paid; refusals of others name it."""

from penstock.domains.outbox.control.instruction_facts import InstructionFacts
from penstock.domains.outbox.ending import UNKNOWN_PREFIX
from penstock.domains.outbox.errors import ResultUnknown
from penstock.kernel.inspect import ItemView

LOST = "lost"  # The kernel's reason for an item whose worker died.

USE_RESOLVE = "use penstock outbox resolve"
USE_RELEASE = "use penstock outbox release, which has the rail asked before anything is sent"
WAIT = (
    "its next attempt asks the rail, and penstock outbox resolve decides what that leaves open; "
    "penstock outbox suspend keeps its participant from being paid meanwhile"
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
    reason = item.reason or ""
    is_open = item.state == "held" and (reason == LOST or reason.startswith(UNKNOWN_PREFIX))
    return USE_RESOLVE if is_open else USE_RELEASE
