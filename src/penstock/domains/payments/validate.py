"""The first step of phase A: refuse a payment that cannot be right. Pure: touches no database."""

import re
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

import msgspec

from penstock.base.errors import InvalidInput
from penstock.base.iban import bic_fault, iban_fault
from penstock.base.money import InstructedAmount, read_money
from penstock.domains.payments.payment import Draft, NewPayment, Notify, Party
from penstock.kernel.enqueue import check_instant, check_key

FEATURE = "a payment with an IBAN"
# Temporal takes ids of workflows up to 1,000 bytes; `exec-` and an item type come before this one.
ID_BYTES_MAX = 900
NAME_LENGTH_MAX = 140  # The longest name that ISO 20022 takes.
MAIL_LENGTH_MAX = 254  # The longest address that a relay takes.
# Paths under /payments, or what clients take out of a path.
RESERVED_IDS = frozenset({".", "..", "batch", "stream"})

ITEM_TYPE = re.compile(r"[A-Z][A-Z0-9_]{0,62}")  # As the table's CHECK.
RAIL_TYPE = re.compile(r"[a-z0-9][a-z0-9_.-]{0,62}")  # As the outbox takes it.
_MAIL = re.compile(r"[^@\s]{1,64}@[^@\s.]{1,63}(\.[^@\s.]{1,63})*")


def validate(payment: NewPayment) -> Draft:
    """Return the payment with its exact amount and content hash; raises InvalidInput."""
    _check_id(payment.payment_id)
    check_text("participant_id", payment.participant_id)
    if ITEM_TYPE.fullmatch(payment.item_type) is None:
        raise InvalidInput("item_type", "must be 1 to 63 of A-Z, 0-9 and _, beginning with A-Z")
    if RAIL_TYPE.fullmatch(payment.rail_type) is None:
        raise InvalidInput("rail_type", "must be 1 to 63 of a-z, 0-9, dot, dash and underscore")
    money = read_money({"amount": payment.amount, "currency": payment.currency}, prefix="")
    _check_party("debtor", payment.debtor)
    _check_party("creditor", payment.creditor)
    check_instant("execute_at", payment.execute_at)
    _check_notify(payment.notify)
    return Draft(payment=payment, money=money, content_hash=_content_hash(payment, money))


def _check_id(payment_id: str) -> None:
    """Refuse an id under which nobody could ask for the payment, or that no mail could name."""
    check_text("payment_id", payment_id)
    if not payment_id.isprintable():
        raise InvalidInput("payment_id", "must be printable characters in one line")
    if len(payment_id.encode()) > ID_BYTES_MAX:
        raise InvalidInput("payment_id", f"must have at most {ID_BYTES_MAX} bytes in UTF-8")
    if "/" in payment_id or payment_id in RESERVED_IDS:
        raise InvalidInput("payment_id", "must have no slash, and not be the name of a path")


def check_text(field: str, value: str | None) -> None:
    """Raise InvalidInput for an id or a name that cannot be stored."""
    if value is None:
        raise InvalidInput(field, "is missing")
    check_key(field, value)


def _check_party(field: str, party: Party) -> None:
    name = party.name
    if not name.strip() or len(name) > NAME_LENGTH_MAX or not name.isprintable():
        reason = f"must be a text of 1 to {NAME_LENGTH_MAX} characters in one line"
        raise InvalidInput(f"{field}.name", reason)
    reason = iban_fault(party.iban, feature=FEATURE)
    if reason is not None:
        raise InvalidInput(f"{field}.iban", reason)
    if party.bic is None:
        return
    reason = bic_fault(party.bic, feature=FEATURE)
    if reason is not None:
        raise InvalidInput(f"{field}.bic", reason)


def _check_notify(notify: Notify) -> None:
    """Refuse what is no address at all; `compose` adds the check of mail where it is installed."""
    mail = notify.mail
    if mail is not None and (len(mail) > MAIL_LENGTH_MAX or not _MAIL.fullmatch(mail)):
        raise InvalidInput("notify.mail", "must be an e-mail address")


def _content_hash(payment: NewPayment, money: InstructedAmount) -> str:
    """Return the hash by which two payments with one id are compared.

    `12.5` and `12.50`, and one instant in two time zones, are the same.
    """
    content: dict[str, Any] = msgspec.to_builtins(payment)
    content["amount"] = money.text
    content["execute_at"] = _in_utc(payment.execute_at)
    return sha256(msgspec.json.encode(content, order="deterministic")).hexdigest()


def _in_utc(instant: datetime | None) -> str | None:
    return None if instant is None else instant.astimezone(UTC).isoformat()
