"""Whether relays take mails: one line in the log and one row for each change, for people.

Nothing is decided by it: gates keep mails from a failing relay.
"""

import re
from dataclasses import dataclass, field
from datetime import datetime

from penstock.base.log import Logger
from penstock.domains.mail.relay import SmtpRelay
from penstock.postgres.errors import DatabaseAway
from penstock.postgres.pool import Pool, Queries, database_away
from penstock.postgres.statement import statement

FAIL_RELAY = statement(__package__, "fail_relay.sql")
RECOVER_RELAY = statement(__package__, "recover_relay.sql")
LIST_FAILING_RELAYS = statement(__package__, "list_failing_relays.sql")

# The words of a reply may contain an address or an account, and are not logged.
_CODES = re.compile(r"[245][0-9]{2}( [245]\.[0-9]{1,3}\.[0-9]{1,3})?\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class FailingRelay:
    """A relay that took no mail when it was last tried."""

    relay: str
    last_error: str
    changed_at: datetime


@dataclass(slots=True, kw_only=True)
class RelayStates:
    """What this process knows of relays; a changed row of a relay is a new relay."""

    pool: Pool
    log: Logger
    _known: dict[tuple[str, datetime | None], bool] = field(default_factory=dict)

    async def note(self, relay: SmtpRelay, *, error: str | None) -> None:
        """Note how a transaction went: `error` is what the relay itself failed with."""
        key = (relay.name, relay.updated_at)
        if self._known.get(key) is (error is not None):
            return
        try:
            with database_away():
                await self._write(relay.name, error)
        except DatabaseAway:
            return  # The next mail notes it.
        self._known[key] = error is not None

    async def _write(self, name: str, error: str | None) -> None:
        if error is None:
            if await self.pool.fetchval(RECOVER_RELAY, name):
                self.log.info("mail_relay.recovered", name=name)
        elif await self.pool.fetchval(FAIL_RELAY, name, error):
            codes = _CODES.match(error)
            self.log.warning(
                "mail_relay.failed", name=name, reason=error if codes is None else codes[0]
            )


async def list_failing_relays(db: Queries) -> list[FailingRelay]:
    """Return the relays that take no mails now, by name."""
    return [FailingRelay(**dict(row.items())) for row in await db.fetch(LIST_FAILING_RELAYS)]
