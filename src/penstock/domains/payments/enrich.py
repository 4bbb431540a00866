"""The second step of phase A: add the bank of each party. Pure: the register is in memory."""

from typing import Any

from msgspec.structs import replace

from penstock.base.errors import InvalidInput
from penstock.base.iban import bank_of
from penstock.domains.payments.payment import Draft, Party
from penstock.domains.payments.validate import FEATURE


def enrich(draft: Draft) -> Draft:
    """Return the draft with both banks; raises InvalidInput for a BIC of another country."""
    return replace(
        draft,
        debtor=_bank("debtor", draft.payment.debtor),
        creditor=_bank("creditor", draft.payment.creditor),
    )


def _bank(field: str, party: Party) -> dict[str, Any]:
    """Return what the register has about the bank of a party."""
    bank = bank_of(party.iban, feature=FEATURE)
    if party.bic is not None and party.bic[4:6] != bank.country:
        raise InvalidInput(f"{field}.bic", f"is not of the country of the IBAN, {bank.country}")
    found = {
        "country": bank.country,
        "bank_code": bank.code,
        "bank_name": bank.name,
        "bic": party.bic or bank.bic,
    }
    return {name: value for name, value in found.items() if value}
