"""What consumers count; importable without the extra."""

from penstock.base.meter import Counter

MESSAGES = Counter(
    "kafka_messages_total",
    "Kafka messages by outcome: `accepted`, or `refused` for those that are in the dead topic.",
    ("outcome",),
)

METRICS = (MESSAGES,)
