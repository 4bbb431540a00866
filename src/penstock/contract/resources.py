"""What the app lends to its domains: connections, settings, secrets, log, metrics, clock, gate."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from pydantic_settings import BaseSettings

from penstock.base.clock import Clock, SystemClock
from penstock.base.log import Logger
from penstock.base.meter import Meter
from penstock.base.settings import Settings, section, settings
from penstock.base.vault import Vault, load_or_make_key, parse_keys
from penstock.limits.gate import ProcessGate
from penstock.limits.local import LocalGate
from penstock.postgres.embedded import find_running
from penstock.postgres.pool import Pool

S = TypeVar("S", bound=BaseSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """Valid from the opening of the app until its closing; `settings` is the app's own section.

    `clock` is the database's, from the first claim of the app's worker on, and before that the
    machine's. `gate` applies the limits of all domains and lanes, shared through Redis if the
    environment names one.
    """

    pool: Pool
    settings: Settings
    vault: Vault
    log: Logger
    meter: Meter
    clock: Clock = field(default_factory=SystemClock)
    gate: ProcessGate = field(default_factory=LocalGate)

    def section(self, kind: type[S]) -> S:
        """Return a domain's own settings, as they were read at start."""
        return section(kind)


def choose_vault(address: str, data_dir: Path | None = None) -> Vault:
    """Return the vault with the configured key, or with the key in the database's own folder."""
    chosen = settings()
    if chosen.secret_key is not None:
        return Vault(*parse_keys(chosen.secret_key.get_secret_value()))
    folder = data_dir or chosen.data_dir
    if address == find_running(folder):
        return Vault(*parse_keys(load_or_make_key(folder)))
    return Vault()
