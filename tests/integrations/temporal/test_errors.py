"""Whatever the SDK raises becomes a TemporalFailed, and no class of it is missed."""

from collections.abc import Iterator

import pytest
from temporalio.exceptions import TemporalError
from temporalio.service import RPCError, RPCStatusCode

from penstock.integrations.temporal.errors import FAILURES, TemporalFailed, translate, translated

REFUSED = {"INVALID_ARGUMENT", "ALREADY_EXISTS", "FAILED_PRECONDITION", "OUT_OF_RANGE"}


def classes(ancestor: type[Exception]) -> Iterator[type[Exception]]:
    for child in ancestor.__subclasses__():
        yield child
        yield from classes(child)


def test_every_class_of_the_sdk_is_translated() -> None:
    found = set(classes(TemporalError)) - {RPCError}

    assert len(found) > 20
    for kind in found:
        assert issubclass(kind, FAILURES)
        assert translate(kind.__new__(kind)).kind == "refused"


@pytest.mark.parametrize("status", list(RPCStatusCode), ids=lambda each: each.name)
def test_only_an_answer_about_the_request_itself_is_a_refusal(status: RPCStatusCode) -> None:
    """Other failures would kill every item of an outage after a few attempts."""
    translated = translate(RPCError("no", status, b""))

    assert translated.kind == ("refused" if status.name in REFUSED else "unavailable")


def test_a_failed_connection_is_translated() -> None:
    message = "temporal: unavailable: RuntimeError: no route"
    with pytest.raises(TemporalFailed, match=message), translated():
        raise RuntimeError("no route")
