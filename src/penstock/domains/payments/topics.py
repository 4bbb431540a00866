"""The section of the environment that names the topics of payments."""

from pydantic_settings import BaseSettings

from penstock.base.settings import SECTION


class PaymentTopics(BaseSettings):
    """The topics of payments that come through Kafka."""

    model_config = SECTION

    payments_kafka_topic: str = "payments.requests"
    """Topic that `penstock kafka consume payments` reads payments from."""
    payments_kafka_group: str = "payment-init-workers"
    """Consumer group of `penstock kafka consume payments`."""
    payments_kafka_dead_topic: str = "payments.dead"
    """Topic for messages that can never be scheduled."""
