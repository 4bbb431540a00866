"""What the outbox declares to the app; what runs is in runtime.py."""

from penstock.contract import Domain, OwnedLane
from penstock.domains.outbox.control_errors import (
    AlreadyDecided,
    ApprovalDenied,
    DecisionRefused,
    ResultUnknown,
    UnknownCalendar,
    UnknownSuspension,
    UnknownSwitch,
)
from penstock.domains.outbox.errors import InstructionConflict, UnknownInstruction
from penstock.domains.outbox.lanes import GUARDS, LANE, OWNER, POLICY
from penstock.domains.outbox.metrics import METRICS
from penstock.domains.outbox.settings import OutboxSettings

# Without what reaches the rails: `compose.outbox` adds the factory and the commands.
OUTBOX = Domain(
    name=OWNER,
    migration_packages=("penstock.domains.outbox",),
    lanes=(OwnedLane(name=LANE, policy=POLICY, guards=GUARDS),),
    errors=(
        AlreadyDecided,
        ApprovalDenied,
        DecisionRefused,
        InstructionConflict,
        ResultUnknown,
        UnknownCalendar,
        UnknownInstruction,
        UnknownSuspension,
        UnknownSwitch,
    ),
    settings=(OutboxSettings,),
    errors=(InstructionConflict, UnknownInstruction),
    metrics=METRICS,
)
