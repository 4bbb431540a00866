"""One command per domain that works on a fresh database: `penstock up` prints them."""

from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Hint:
    """A request to try: the domain that answers it, what it asks for, its path and its JSON."""

    domain: str
    what: str
    path: str
    body: str  # Between single quotes of a shell.


HINTS = (
    Hint(
        "slots",
        "a slot for an event",
        "/api/v1/slots",
        """{"eventId": "pay-1", "requestedTime": "'$(date -u +%FT%TZ)'"}""",
    ),
    Hint(
        "webhooks",
        "an event for all who subscribed to it",
        "/events",
        '{"type": "order.paid", "id": "order-1-paid", "data": {"order": 1}}',
    ),
    Hint(
        "mail",
        "a mail, which is kept here until you set PENSTOCK_SMTP_URL",
        "/mails",
        '{"from": "shop@example.com", "to": ["ada@example.com"], "subject": "Order 1", '
        '"text": "It is on its way.", "key": "order-1"}',
    ),
    Hint(
        "outbox",
        "an instruction to a rail, here a simulator",
        "/outbox/instructions",
        '{"instruction_id": "pay-1", "participant_id": "shop", "idempotency_key": "pay-1", '
        '"rail_type": "simulator", "payload": {"amount": "12.50", "currency": "EUR", '
        '"destination": {"iban": "FR1420041010050500013M02606"}}}',
    ),
    Hint(
        "payments",
        "a payment, which becomes such an instruction when it is due",
        "/payments",
        '{"payment_id": "pay-2", "item_type": "PAYMENT", "amount": "12.50", "currency": "EUR", '
        '"debtor": {"name": "Shop", "iban": "DE89370400440532013000"}, '
        '"creditor": {"name": "Ada", "iban": "FR1420041010050500013M02606"}, '
        '"participant_id": "shop", "rail_type": "simulator"}',
    ),
)


def commands(url: str, domains: Collection[str]) -> list[tuple[str, str]]:
    """Return what to try and its command, for the domains of this process.

    The command takes the API key from the variable KEY of the shell.
    """
    return [
        (
            hint.what,
            f"""curl -s {url}{hint.path} -H "Authorization: Bearer $KEY" --json '{hint.body}'""",
        )
        for hint in HINTS
        if hint.domain in domains
    ]
