"""The second step of phase A: add the bank of each party. Pure: the register is in memory."""

from typing import Any

from msgspec.structs import replace

from penstock.base.errors import InvalidInput
from penstock.base.iban import bank_of
from penstock.domains.payments.payment import Draft, Party
from penstock.domains.payments.validate import FEATURE

# Territories whose accounts have IBANs of another country, by that country (SWIFT's IBAN registry).
TERRITORIES = {
    "FI": {"AX"},
    "FR": {"BL", "GF", "GP", "MF", "MQ", "NC", "PF", "PM", "RE", "TF", "WF", "YT"},
    "GB": {"GG", "IM", "JE"},
}


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
    countries = {bank.country, *TERRITORIES.get(bank.country, ())}
    if party.bic is not None and party.bic[4:6] not in countries:
        raise InvalidInput(f"{field}.bic", f"is not of the country of the IBAN, {bank.country}")
    found = {
        "country": bank.country,
        "bank_code": bank.code,
        "bank_name": bank.name,
        "bic": party.bic or bank.bic,
    }
    return {name: value for name, value in found.items() if value}
