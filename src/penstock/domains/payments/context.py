"""The context of a payment: what its execution needs, as JSON with a version.

A version is never changed: new fields are added to a new one, and an engine reads both, because
payments wait for days while releases change.
"""

from typing import Any

import msgspec
from msgspec.structs import replace

from penstock.domains.payments.payment import Draft, Party

CONTEXT_VERSION = 1


def build_context(draft: Draft) -> Draft:
    """Return the draft with its context."""
    payment = draft.payment
    context: dict[str, Any] = {
        "amount": draft.money.text,
        "currency": draft.money.currency,
        "debtor": _party(payment.debtor) | dict(draft.debtor),
        "creditor": _party(payment.creditor) | dict(draft.creditor),
        "participant_id": payment.participant_id,
        "rail_type": payment.rail_type,
        "notify": msgspec.to_builtins(payment.notify),
    }
    return replace(draft, context=context, context_version=CONTEXT_VERSION)


def _party(party: Party) -> dict[str, Any]:
    return msgspec.to_builtins(party)
