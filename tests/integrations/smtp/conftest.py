"""A client that is closed after each test."""

from collections.abc import AsyncGenerator

import pytest

from penstock.integrations.smtp import Client


@pytest.fixture
async def client() -> AsyncGenerator[Client]:
    async with Client(ehlo_name="client.test") as client:
        yield client
