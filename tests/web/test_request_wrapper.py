"""What every request gets: an id, security headers, one line in the log, and no internals."""

from collections.abc import Generator
from io import StringIO

import msgspec
import pytest
import structlog
from httpx import ASGITransport, AsyncClient
from structlog.testing import capture_logs

from penstock import Penstock
from penstock.api import create_app
from penstock.base.log import configure, get_logger
from penstock.contract.http import Call, NoParameters, endpoint
from tests.api.scene import Callers, caller, problem


@pytest.mark.covers("B10")
@pytest.mark.parametrize("given", ["abc-123", "a" * 100, "trace:1/2+3=@x.y_z"])
async def test_a_safe_request_id_is_kept(shared_callers: Callers, given: str) -> None:
    response = await shared_callers.stranger.get("/health/live", headers={"X-Request-Id": given})

    assert response.headers["x-request-id"] == given


@pytest.mark.parametrize("given", ["", "a" * 101, "two words", "new\tline", "<b>", "é"])
async def test_an_unsafe_request_id_is_replaced(shared_callers: Callers, given: str) -> None:
    """It goes into log lines and other people's terminals."""
    headers = [(b"X-Request-Id", given.encode())]

    response = await shared_callers.stranger.get("/health/live", headers=headers)

    assert response.headers["x-request-id"] != given
    assert len(response.headers["x-request-id"]) == 32


async def test_requests_without_an_id_get_different_ones(shared_callers: Callers) -> None:
    first = await shared_callers.stranger.get("/health/live")
    second = await shared_callers.stranger.get("/health/live")

    assert first.headers["x-request-id"] != second.headers["x-request-id"]


@pytest.mark.parametrize("path", ["/health", "/lanes", "/nothing", "/docs"])
async def test_every_response_has_security_headers(shared_admin: AsyncClient, path: str) -> None:
    response = await shared_admin.get(path)

    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["cache-control"] == "no-store"
    assert "default-src 'none'" in response.headers["content-security-policy"]


@pytest.fixture
def written() -> Generator[StringIO]:
    """What is logged, as it is written."""
    target = StringIO()
    configure("info", "json", file=target)
    yield target
    structlog.reset_defaults()


async def test_the_request_id_is_in_every_line_that_the_request_causes(
    penstock: Penstock, written: StringIO
) -> None:
    async def look(_call: Call[NoParameters, None]) -> None:
        get_logger().info("looked.around")

    penstock.endpoints = (endpoint("GET", "/look", look, scope=None, summary="Look"),)

    async with caller(ASGITransport(create_app(penstock)), None) as client:
        await client.get("/look", headers={"X-Request-Id": "r-3"})

    get_logger().info("looked.back")
    lines = [msgspec.json.decode(line) for line in written.getvalue().splitlines()]
    assert [(line["event"], line.get("request_id")) for line in lines] == [
        ("looked.around", "r-3"),
        ("request.answered", "r-3"),
        ("looked.back", None),
    ]


@pytest.mark.covers("B10")
async def test_a_request_is_one_log_line_without_secrets(admin: AsyncClient) -> None:
    with capture_logs() as lines:
        await admin.get(
            "/items/by-key?lane=work&key=somebodys-secret", headers={"X-Request-Id": "r-1"}
        )

    (line,) = lines
    assert line["event"] == "request.answered"
    assert line["method"] == "GET"
    assert line["route"] == "/items/by-key"
    assert line["status"] == 404
    assert line["code"] == "unknown-item"
    assert line["duration_ms"] >= 0
    assert line["key_id"]
    assert "somebodys-secret" not in str(lines)
    assert admin.headers["authorization"].removeprefix("Bearer ") not in str(lines)


async def test_probes_and_scrapes_do_not_fill_the_log(admin: AsyncClient) -> None:
    """They come every few seconds, and metrics show the same more precisely."""
    configure("info")

    with capture_logs() as lines:
        await admin.get("/health")
        await admin.get("/metrics")

    assert lines == []


@pytest.mark.covers("B10")
async def test_the_details_of_a_bug_are_in_the_log_and_not_in_the_response(
    penstock: Penstock,
) -> None:
    """The caller gets an id to quote; the line in the log has the same one."""

    async def explode(_call: Call[NoParameters, None]) -> None:
        raise RuntimeError("the password is hunter2")

    penstock.endpoints = (endpoint("GET", "/explode", explode, scope=None, summary="Explode"),)
    transport = ASGITransport(create_app(penstock), raise_app_exceptions=False)

    with capture_logs() as lines:
        async with caller(transport, None) as client:
            response = await client.get("/explode", headers={"X-Request-Id": "r-2"})

    problem(response, 500, "internal")
    assert response.headers["x-request-id"] == "r-2"
    assert response.headers["x-content-type-options"] == "nosniff"
    assert "hunter2" not in response.text
    (line,) = lines
    assert line["log_level"] == "error"
    assert line["error"] == "RuntimeError"
    assert "explode" in line["where"]
    assert "hunter2" not in str(lines)
