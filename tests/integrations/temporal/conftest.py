"""A client of the file's Temporal server."""

import pytest
from temporalio.client import Client

from penstock.integrations.temporal.client import connect
from tests.temporal_server import TemporalServer


@pytest.fixture(scope="module")
async def client(temporal: TemporalServer) -> Client:
    return await connect(temporal.target)
