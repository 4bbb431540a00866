"""What all clients of a broker share: options, complaints, and how failures are told."""

from typing import Any

from confluent_kafka import KafkaError, KafkaException

from penstock.base.errors import CallFailed, InvalidInput, PenstockError
from penstock.base.log import Logger
from penstock.integrations.kafka.options import Options

# The library's own, what it says to wrong use of a closed client, and a queue that is full.
FAILURES = (KafkaException, RuntimeError, BufferError)

_TOO_LARGE = (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_MSG_SIZE)


class Complaints:
    """Tells of each sort of trouble once, until all is well: a broker is tried all the time."""

    def __init__(self, log: Logger) -> None:
        self._log = log
        self._told: set[str] = set()

    def hear(self, error: KafkaError) -> None:
        """Take note of an error that the client repairs, or tries to repair, by itself."""
        if error.name() not in self._told:
            self._told.add(error.name())
            self._log.warning("broker.failed", code=error.name(), reason=error.str())

    def forget(self) -> None:
        """Take note that all is well."""
        self._told.clear()


def options_of(bootstrap: str, complaints: Complaints, more: Options) -> dict[str, Any]:
    """Return the options of a client; `more` wins."""
    return {
        "bootstrap.servers": bootstrap,
        "client.id": "penstock",
        # What it would print by itself, on standard error, comes as a complaint.
        "log_level": 0,
        "error_cb": complaints.hear,
        **more,
    }


def translate(failure: BaseException | KafkaError) -> PenstockError:
    """Return our own error for one of the library's."""
    if isinstance(failure, KafkaException):
        failure = failure.args[0]
    if not isinstance(failure, KafkaError):
        return CallFailed("kafka", type(failure).__qualname__)
    if failure.code() in _TOO_LARGE:
        return InvalidInput("message", "is larger than the broker takes")
    return CallFailed("kafka", failure.name())
