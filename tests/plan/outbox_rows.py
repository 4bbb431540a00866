"""Instructions in a copy of the loaded database; elsewhere their items would be the newest."""

from pathlib import Path
from typing import LiteralString, cast

from penstock.domains.outbox.lanes import LANE
from penstock.kernel.lane import create_lane
from penstock.postgres.pool import connect

OUTBOX = cast("LiteralString", Path(__file__).with_name("outbox.sql").read_text(encoding="utf-8"))


async def with_outbox(copied: str) -> str:
    """Add the instructions to a copy, and return its address."""
    connection = await connect(copied)
    await create_lane(connection, LANE, who="test", owner="outbox", ordering="per_key")
    await connection.execute(OUTBOX)
    await connection.close()
    return copied
