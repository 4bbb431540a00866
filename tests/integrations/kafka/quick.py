"""A consumer as a process, to be killed: it is missed sooner than `penstock kafka consume`.

With the word `halt`, it accepts a batch, says so, and never gets to commit the offsets.
"""

import asyncio
import sys
from collections.abc import Sequence

from penstock.base.log import get_logger
from penstock.base.meter import Meter
from penstock.base.settings import section, settings
from penstock.compose.kafka import require_bootstrap
from penstock.domains.webhooks.accept import accept_messages
from penstock.domains.webhooks.settings import WebhookSettings
from penstock.integrations.kafka.consumer import Consumer, Record, Source
from penstock.postgres.pool import open_pool
from tests.integrations.kafka.scene import QUICK


async def main(*, halts: bool) -> None:
    chosen = settings()
    assert chosen.database_url is not None
    topics = section(WebhookSettings)
    pool = await open_pool(chosen.database_url.get_secret_value(), min_size=1, max_size=2)

    async def accept(records: Sequence[Record]) -> list[str | None]:
        reasons = await accept_messages(pool, records, data_bytes_max=chosen.payload_bytes_max)
        print(f"accepted {len(records)}", flush=True)
        if halts:
            await asyncio.Event().wait()
        return reasons

    source = Source(
        bootstrap=require_bootstrap(),
        topic=topics.kafka_topic,
        group=topics.kafka_group,
        dead_topic=topics.kafka_dead_topic,
        options=QUICK,
    )
    await Consumer(source, accept, log=get_logger(), meter=Meter()).run(asyncio.Event())


if __name__ == "__main__":
    asyncio.run(main(halts="halt" in sys.argv))
