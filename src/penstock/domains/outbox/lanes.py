"""The lane of the outbox: strict order for each participant, and nothing is repeated blindly."""

from datetime import timedelta
from typing import Any

LANE = "penstock.outbox"
OWNER = "outbox"  # The name of the domain.

# A dead head blocks its participant and a lost attempt is held: both are decided by the domain.
# With a lease of 60 s and a sweep every 5 s, what a dead worker held is reconciled within 120 s.
POLICY: dict[str, Any] = {
    "ordering": "per_key",
    "on_dead_head": "block",
    "on_lost": "hold",
    "lease": timedelta(seconds=60),
    # Marks and checks of those that start together share statements; each rail has its own cap.
    "concurrency": 500,
}

# A longer lease would be healed later than that, so nobody else changes it. Ordering, on_dead_head
# and on_lost are guarded for every lane of a domain.
GUARDS = {
    "enqueue": "use POST /outbox/instructions or penstock.send_instruction",
    "retry": "use penstock outbox release",
    "replay": "use penstock outbox release",
    "resolve": "use penstock outbox resolve",
    "hold": "use penstock outbox hold",
    "release": "use penstock outbox release",
    "skip": "use penstock outbox skip",
    "cancel": "use penstock outbox resolve",
    "reschedule": "an instruction leaves in its turn",
    "set:lease": "with 60 s, what a dead worker left is decided or released within 120 s",
}
