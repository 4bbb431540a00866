"""A consumer process like `penstock kafka consume`, with a session timeout of two seconds.

That of the command is ten: with one kill per second, its consumer group would hardly form.
"""

import asyncio
import signal
from functools import partial

import uvloop

from penstock import Penstock
from penstock.base.aio import supervise
from penstock.base.log import configure
from penstock.base.settings import section, settings
from penstock.compose.kafka import require_bootstrap
from penstock.domains.webhooks.accept import accept_messages
from penstock.domains.webhooks.settings import WebhookSettings
from penstock.integrations.kafka.consumer import Consumer, Source

OPTIONS: dict[str, str | int | bool] = {
    "session.timeout.ms": 2_000,
    "heartbeat.interval.ms": 200,
    "reconnect.backoff.max.ms": 500,
}


async def main() -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    chosen = section(WebhookSettings)
    source = Source(
        bootstrap=require_bootstrap(),
        topic=chosen.kafka_topic,
        group=chosen.kafka_group,
        dead_topic=chosen.kafka_dead_topic,
        options=OPTIONS,
    )
    async with Penstock() as app:
        accept = partial(accept_messages, app.pool, data_bytes_max=settings().payload_bytes_max)
        consumer = Consumer(source, accept, log=app.log, meter=app.meter)
        await supervise(lambda: consumer.run(stop), name="consumer", log=app.log)


if __name__ == "__main__":
    configure("warning")
    uvloop.run(main())
