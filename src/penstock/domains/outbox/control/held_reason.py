"""Why the domain holds an instruction before it is sent: how the reasons of held items begin.

Other reasons are of operators, or of unknown results.
"""

AWAITS_APPROVAL = "awaits approval"
SUSPENDED = "suspended"
