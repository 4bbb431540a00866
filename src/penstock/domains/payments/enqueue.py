"""The last step of phase A: save contexts and enqueue items, in the caller's transaction."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from penstock.domains.payments.lanes import LANE
from penstock.domains.payments.payment import Draft, Queued
from penstock.kernel import driver, payload
from penstock.postgres.statement import statement

SAVE_AND_ENQUEUE = statement(__package__, "save_and_enqueue.sql")


async def save_and_enqueue(
    connection: object, drafts: Sequence[Draft], now: datetime
) -> Mapping[str, Queued]:
    """Return the items of payments by id. A repeat changes nothing and returns what is stored."""
    queued: dict[str, Queued] = {}
    for item_type in sorted({each.payment.item_type for each in drafts}):
        listed = [each for each in drafts if each.payment.item_type == item_type]
        arguments = (
            item_type,
            [each.payment_id for each in listed],
            [payload.encode(each.context) for each in listed],
            [each.context_version for each in listed],
            [each.scheduled_at for each in listed],
            now,
        )
        row = await driver.fetch_row(connection, SAVE_AND_ENQUEUE, arguments, lane=LANE)
        queued |= {
            payment_id: Queued(item_id, scheduled_at)
            for payment_id, item_id, scheduled_at in zip(*row, strict=True)
        }
    return queued
