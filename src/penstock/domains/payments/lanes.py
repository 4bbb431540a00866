"""The lane of payments, and the policy that it starts with.

`add_payment_item_type.sql` gives lanes of other item types the same policy and the same guards.
"""

from datetime import timedelta
from typing import Any

LANE = "payment"  # Of the item type PAYMENT; other item types have lanes of their own.
OWNER = "payments"  # The name of the domain.

# As the migration creates it: 500 payments every 5 seconds, each batch spread over 4 seconds.
POLICY: dict[str, Any] = {
    "batch_size": 500,
    "dispatch_interval": timedelta(seconds=5),
    "jitter_window": timedelta(seconds=4),
    "lease": timedelta(minutes=2),
}

# An outage must not use up the attempts of payments that nothing is wrong with: the most that can
# be counted, which is more than 300 years of cycles.
ATTEMPTS_MAX = 2**31 - 1

# The kernel alone would leave the payment in its status.
GUARDS = {
    "enqueue": (
        "use POST /payments, penstock payment schedule, or for items of your own"
        " penstock.save_context_and_enqueue"
    ),
    "cancel": "use penstock payment cancel",
    "reschedule": "use penstock payment reschedule",
    "resolve": "use penstock payment cancel, or release the item",
}
