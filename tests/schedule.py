"""Which tests share a process of a parallel run (pytest-xdist), and which of them start first.

Tests of one file run in one process, because they may share a fixture. So do the tests of a folder
with expensive fixtures (brokers, a database with millions of rows), and the crash tests, each of
which starts a dozen processes: those of the outbox take as long as all others, and run beside them.
"""

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

TOGETHER = (
    "tests/fault/test_outbox",  # Before the folder: the first that fits is taken.
    "tests/fault/",
    "tests/integrations/kafka/",
    "tests/integrations/temporal/",
    "tests/domains/payments/temporal/",
    "tests/plan/",
)
# What takes longest starts first: if it started last, it would run alone at the end.
FIRST = (
    *TOGETHER,
    "tests/model/",
    "tests/domains/slots/test_differential.py",
    "tests/conformance/test_differential.py",
    "tests/e2e/",
)


class Scheduling(LoadFileScheduling):
    """Give the next file, or folder, to whichever process has finished its own."""

    def __init__(self, config: pytest.Config, log: Producer) -> None:
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        folders = (folder for folder in TOGETHER if nodeid.startswith(folder))
        return next(folders, super()._split_scope(nodeid))


def rank(item: pytest.Item) -> int:
    """Return the place of a test in the order of all, for a stable sort."""
    places = (place for place, folder in enumerate(FIRST) if item.nodeid.startswith(folder))
    return next(places, len(FIRST))
