"""The dead topic: messages that can never be accepted, each with the reason and its origin.

Every message can be published here. What the topic does not take of one is omitted, and named in a
header: a message that is refused again and again would stop its partition for ever.
"""

from typing import cast

from confluent_kafka import Message

from penstock.base.errors import CallFailed, InvalidInput
from penstock.base.log import Logger
from penstock.integrations.kafka.member import offset_of, part_of
from penstock.integrations.kafka.options import Options
from penstock.integrations.kafka.publisher import Headers, Publisher

# Tried in this order. The value is the event, so it outlives a key or headers that are too large.
_OMITTED = ((), ("value",), ("key", "headers"), ("key", "value", "headers"))


class DeadTopic:
    """Publishes messages to the dead topic."""

    def __init__(self, bootstrap: str, topic: str, *, log: Logger, options: Options) -> None:
        self._publisher = Publisher(bootstrap, topic, log=log, options=options)

    async def publish(self, message: Message, reason: str) -> None:
        """Return once the dead topic has the message, as far as it takes it.

        Raises CallFailed if the topic takes nothing now.
        """
        headers, notes = _headers_of(message)
        added = [*_origin_of(message, reason), *notes]
        why = ""
        for omitted in _OMITTED:
            note = [_omitted(", ".join(omitted), why)] if omitted else []
            try:
                await self._publisher.publish(
                    None if "key" in omitted else message.key(),
                    None if "value" in omitted else message.value(),
                    headers=[*([] if "headers" in omitted else headers), *added, *note],
                )
            except InvalidInput as refused:
                why = refused.reason
            else:
                return
        raise CallFailed("kafka", f"the dead topic takes no message: {why}")

    async def close(self) -> None:
        """Wait for messages in progress and close the connection."""
        await self._publisher.close()


def _headers_of(message: Message) -> tuple[Headers, Headers]:
    """Return a message's headers, and a note if they cannot be decoded."""
    try:
        return cast("Headers", message.headers() or ()), ()
    except Exception:  # noqa: BLE001  The library raises SystemError for a name that is not UTF-8.
        return (), (_omitted("headers", "they cannot be decoded"),)


def _origin_of(message: Message, reason: str) -> Headers:
    topic, partition = part_of(message)
    return (
        ("penstock-reason", reason),
        ("penstock-topic", topic),
        ("penstock-partition", str(partition)),
        ("penstock-offset", str(offset_of(message))),
    )


def _omitted(parts: str, why: str) -> tuple[str, str]:
    return "penstock-omitted", f"{parts}: {why}"
