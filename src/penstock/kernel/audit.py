"""The audit log: who changed what and when. Written in the transaction of the change."""

import json

from penstock.postgres.pool import Queries
from penstock.postgres.statement import statement

AUDIT = statement(__package__, "audit.sql")


async def audit(
    db: Queries,
    who: str,
    action: str,
    *,
    subject: str,
    before: object = None,
    after: object = None,
) -> None:
    """Insert one entry; `before` and `after` are JSON values, never payloads or secrets."""
    await db.execute(AUDIT, who, action, subject, _json(before), _json(after))


def _json(value: object) -> str | None:
    return None if value is None else json.dumps(value)
