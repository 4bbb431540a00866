"""The two lanes of mail, and the policy that they start with."""

from typing import Any

LANE = "penstock.mail"
BULK_LANE = "penstock.mail.bulk"  # A newsletter waits here, and delays no password mail.

# Attempts, base, cap and jitter are those of DISPATCH_*, whose defaults are the document's. With
# the exponent 1 the first delay is twice the base. Many mails wait for slow relays at once.
POLICY: dict[str, Any] = {"backoff_first_exponent": 1, "concurrency": 200, "batch_size": 200}

OWNER = "mail"  # The name of the domain.
GUARDS = {
    "enqueue": "use POST /mails, penstock mail send or penstock.send_mail",
    "retry": "use penstock mail replay, which sends to recipients that did not get the mail",
    "replay": "use penstock mail replay, which sends to recipients that did not get the mail",
}


def lane_of(*, bulk: bool) -> str:
    """Return the lane of a mail."""
    return BULK_LANE if bulk else LANE
