"""The webhooks' own section of the environment."""

from typing import Literal

from pydantic_settings import BaseSettings

from penstock.base.settings import SECTION


class WebhookSettings(BaseSettings):
    """Where single events go, and the topics of those that come through Kafka."""

    model_config = SECTION

    events_to: Literal["database", "kafka"] = "database"
    """What `POST /events` does: `database` accepts the event; `kafka` publishes it, and
    `penstock kafka consume` accepts it. `kafka` needs `PENSTOCK_KAFKA_BOOTSTRAP`."""
    kafka_topic: str = "events.pending"
    """Topic that events are read from and published to."""
    kafka_group: str = "dispatch-workers"
    """Consumer group of `penstock kafka consume`."""
    kafka_dead_topic: str = "events.dead"
    """Topic for messages that are not valid events, with the reason."""
