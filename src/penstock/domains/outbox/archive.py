"""Later rows of the archive: what happened to an instruction after its attempts, and by whom."""

from datetime import datetime
from uuid import UUID

from penstock.domains.outbox.instruction import State
from penstock.postgres.pool import Connection
from penstock.postgres.statement import statement

WRITE_EVENT = statement(__package__, "write_event.sql")


async def write_event(  # noqa: PLR0913  One argument per column.
    db: Connection,
    outbox_id: UUID,
    state: State,
    *,
    who: str,
    rail_code: str | None = None,
    rail_reference: str | None = None,
    error_code: str | None = None,
    error_message: str | None = None,
    at: datetime | None = None,
) -> None:
    """Insert one row, in the caller's transaction."""
    await db.execute(
        WRITE_EVENT, outbox_id, state, who, rail_code, rail_reference, error_code, error_message, at
    )
