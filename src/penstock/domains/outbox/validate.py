"""Check an instruction before the call: nothing that cannot be right reaches a rail."""

from penstock.base.errors import InvalidInput
from penstock.base.money import InstructedAmount, read_money
from penstock.domains.outbox.instruction import Instruction
from penstock.domains.outbox.rails.destination import check_destination
from penstock.domains.outbox.rails.rail import LoadedRail


def validate(instruction: Instruction, rail: LoadedRail) -> str | None:
    """Return what is wrong with an instruction for this rail, or None."""
    try:
        money = read_money(instruction.payload)
        check_destination(rail.destination_scheme, instruction.payload)
    except InvalidInput as refused:
        return str(refused)
    if money != InstructedAmount(instruction.amount, instruction.currency):
        # Limits and approvals are decided by the columns, and the rail gets the payload.
        return "payload.amount: is not the amount that was accepted"
    return None
