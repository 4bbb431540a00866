"""What the outbox declares to the app; what runs is in runtime.py."""

from penstock.contract import Domain, Hint, OwnedLane
from penstock.domains.outbox.control.gap import check_numbers
from penstock.domains.outbox.errors import (
    AlreadyDecided,
    ApprovalDenied,
    BadSignature,
    DecisionRefused,
    InstructionConflict,
    NoSimulator,
    RailNotLoaded,
    ResultMismatch,
    ResultUnknown,
    UnknownCalendar,
    UnknownCode,
    UnknownInstruction,
    UnknownOutboxLimit,
    UnknownRail,
    UnknownSuspension,
    UnknownSwitch,
)
from penstock.domains.outbox.lanes import GUARDS, LANE, OWNER, POLICY
from penstock.domains.outbox.metrics import METRICS
from penstock.domains.outbox.rails.registry import check_rails
from penstock.domains.outbox.rails.simulator.settings import SimulatorSettings
from penstock.domains.outbox.settings import OutboxSettings

# Without what reaches the rails: `compose.outbox` adds the factory and the commands.
OUTBOX = Domain(
    name=OWNER,
    migration_packages=("penstock.domains.outbox",),
    lanes=(OwnedLane(name=LANE, policy=POLICY, guards=GUARDS),),
    settings=(OutboxSettings, SimulatorSettings),
    errors=(
        AlreadyDecided,
        ApprovalDenied,
        BadSignature,
        DecisionRefused,
        InstructionConflict,
        NoSimulator,
        RailNotLoaded,
        ResultMismatch,
        ResultUnknown,
        UnknownCalendar,
        UnknownCode,
        UnknownInstruction,
        UnknownOutboxLimit,
        UnknownRail,
        UnknownSuspension,
        UnknownSwitch,
    ),
    checks=(check_rails, check_numbers),
    metrics=METRICS,
    hint=Hint(
        what="an instruction to a rail, here a simulator",
        path="/outbox/instructions",
        body='{"instruction_id": "pay-1", "participant_id": "shop", "idempotency_key": "pay-1", '
        '"rail_type": "simulator", "payload": {"amount": "12.50", "currency": "EUR", '
        '"destination": {"iban": "FR1420041010050500013M02606"}}}',
    ),
)
