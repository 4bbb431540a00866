"""Fixtures of the crash tests: the process that starts all others."""

from collections.abc import AsyncGenerator

import pytest

from tests.fault.processes import ForkServer, forking


@pytest.fixture(scope="session")
async def fork_server() -> AsyncGenerator[ForkServer]:
    """The fork server of this process of the tests: it imports each program once."""
    async with forking() as opened:
        yield opened


@pytest.fixture
async def forks(fork_server: ForkServer) -> AsyncGenerator[ForkServer]:
    """The fork server; what a test has started and not ended is killed after it."""
    yield fork_server
    await fork_server.end_all()
