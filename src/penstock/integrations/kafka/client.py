"""What producer and consumer share: options, logging of broker errors, translation of failures."""

from typing import Any

from confluent_kafka import KafkaError, KafkaException

from penstock.base.errors import CallFailed, InvalidInput, PenstockError
from penstock.base.log import Logger
from penstock.integrations.kafka.options import Options

# KafkaException, RuntimeError for a closed client, BufferError for a full queue.
FAILURES = (KafkaException, RuntimeError, BufferError)

_TOO_LARGE = (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_MSG_SIZE)


class BrokerErrors:
    """Logs each sort of error once until a call succeeds: the client retries all the time."""

    def __init__(self, log: Logger) -> None:
        self._log = log
        self._logged: set[str] = set()

    def report(self, error: KafkaError) -> None:
        """Log an error that the client handles, or retries, by itself."""
        if error.name() not in self._logged:
            self._logged.add(error.name())
            self._log.warning("broker.failed", code=error.name(), reason=error.str())

    def reset(self) -> None:
        """Forget the errors so far, after a success."""
        self._logged.clear()


def options_of(bootstrap: str, errors: BrokerErrors, more: Options) -> dict[str, Any]:
    """Return the options of a client; `more` wins."""
    return {
        "bootstrap.servers": bootstrap,
        "client.id": "penstock",
        # Otherwise the library prints to standard error; `error_cb` gets the same errors.
        "log_level": 0,
        "error_cb": errors.report,
        **more,
    }


def translate(failure: BaseException | KafkaError) -> PenstockError:
    """Return the PenstockError for an error of the library."""
    if isinstance(failure, KafkaException):
        failure = failure.args[0]
    if not isinstance(failure, KafkaError):
        return CallFailed("kafka", type(failure).__qualname__)
    if failure.code() in _TOO_LARGE:
        return InvalidInput("message", "is larger than the broker accepts")
    return CallFailed("kafka", failure.name())
