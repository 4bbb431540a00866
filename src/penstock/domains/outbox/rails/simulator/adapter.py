"""The adapter `simulator`: `http_json` with the addresses and fields of the simulator."""

from collections.abc import Mapping
from typing import Any

import msgspec

from penstock.base.errors import InvalidInput
from penstock.domains.outbox.rails.http_json import Exchange, HttpJsonRail, make_rail, parse_config

LOOPBACK = "http://127.0.0.1:"
YEAR_SECONDS = 365 * 86_400  # The ledger keeps keys for ever.


class SimulatorConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `config` of a rail with the adapter `simulator`.

    `not_found_is_final_after_seconds` must be longer than any order hides a payment. If
    `is_asynchronous` is false, what is paid is settled at once, and nobody asks again.
    """

    url: str
    is_idempotent: bool = True
    can_query: bool = True
    is_asynchronous: bool = True
    not_found_is_final_after_seconds: float | None = 5


def make_simulator_rail(config: Mapping[str, Any], *, exchange: Exchange) -> HttpJsonRail:
    """Return the rail; raises InvalidInput for an address that is not on loopback."""
    try:
        chosen = msgspec.convert(dict(config), SimulatorConfig)
    except msgspec.ValidationError as refused:
        raise InvalidInput("config", str(refused)) from refused
    if not chosen.url.startswith(LOOPBACK):
        raise InvalidInput("config.url", f"must begin with {LOOPBACK}")
    return make_rail(parse_config(_http_config(chosen)), None, exchange=exchange)


def _http_config(chosen: SimulatorConfig) -> dict[str, Any]:
    config: dict[str, Any] = {
        "send": {
            "url": f"{chosen.url}/payments",
            "body": {
                "instruction_id": "{instruction_id}",
                "outbox_id": "{outbox_id}",
                "participant_id": "{participant_id}",
                "sequence_id": "{sequence_id}",
                "amount": "{amount}",
                "currency": "{currency}",
                "destination": "{destination}",
                "simulate": "{payload.simulate?}",
            },
        },
        "answer": {
            "code": ["code"],
            "reference": ["reference"],
            "message": ["message"],
            "amount": ["amount"],
            "currency": ["currency"],
        },
        "idempotency_header": "Idempotency-Key",
        "key_valid_for_seconds": YEAR_SECONDS if chosen.is_idempotent else None,
        "is_asynchronous": chosen.is_asynchronous,
    }
    if chosen.can_query:
        config["query"] = {
            "url": f"{chosen.url}/payments/{{key}}",
            "not_found": {"codes": ["NOT_FOUND"]},
        }
        config["not_found_is_final_after_seconds"] = chosen.not_found_is_final_after_seconds
    return config
