"""Which endpoint a request is for, and the error when there is none."""

import pytest
from starlette.exceptions import HTTPException

from penstock.contract.http import Call, Endpoint, Method, NoParameters, endpoint
from penstock.web.routes import Routes, read_routes


async def nothing(_call: Call[NoParameters, None]) -> None:
    """Do nothing."""


def described(method: Method, path: str) -> Endpoint:
    return endpoint(method, path, nothing, scope=None, summary="Nothing")


@pytest.fixture(scope="module")
def routes() -> Routes:
    return read_routes(
        [
            described("GET", "/slots"),
            described("POST", "/slots/batch"),
            described("GET", "/slots/{event_id}"),
            described("DELETE", "/slots/{event_id}"),
            described("GET", "/lanes/{name}"),
            described("POST", "/lanes/{name}/pause"),
            described("POST", "/participants/{id}/suspend"),
            described("POST", "/participants/{id}/resume"),
        ]
    )


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        (("GET", "/slots"), ("/slots", {})),
        (("HEAD", "/slots"), ("/slots", {})),
        (("POST", "/slots/batch"), ("/slots/batch", {})),
        (("GET", "/slots/pay-1"), ("/slots/{event_id}", {"event_id": "pay-1"})),
        (("GET", "/slots/a/b\n"), ("/slots/{event_id}", {"event_id": "a/b\n"})),
        (("POST", "/lanes/x/pause"), ("/lanes/{name}/pause", {"name": "x"})),
        (("POST", "/participants/a/b/suspend"), ("/participants/{id}/suspend", {"id": "a/b"})),
        (
            ("POST", "/participants/a/suspend/resume"),
            ("/participants/{id}/resume", {"id": "a/suspend"}),
        ),
    ],
)
def test_a_request_finds_its_endpoint(
    routes: Routes, asked: tuple[str, str], found: tuple[str, dict[str, str]]
) -> None:
    method, path = asked

    endpoint, in_path = routes.find(path, method)

    assert (endpoint.path, in_path) == found


@pytest.mark.parametrize(
    ("asked", "refusal"),
    [
        (("GET", "/"), (404, None)),
        (("GET", "/slots/"), (404, None)),
        (("GET", "/slot"), (404, None)),
        (("GET", "/lanes/a/b"), (404, None)),
        (("POST", "/lanes/a/b/pause"), (404, None)),
        (("POST", "/participants/a/b"), (404, None)),
        (("GET", "/participants/a/b/resume"), (405, "POST")),
        (("PUT", "/slots"), (405, "GET, HEAD")),
        (("PUT", "/slots/batch"), (405, "POST")),
        (("DELETE", "/slots/batch"), (405, "POST")),
        (("GET", "/slots/batch"), (405, "POST")),
        (("POST", "/slots/pay-1"), (405, "DELETE, GET, HEAD")),
        (("GET", "/lanes/x/pause"), (405, "POST")),
    ],
)
def test_a_missing_path_and_a_wrong_method_are_different_errors(
    routes: Routes, asked: tuple[str, str], refusal: tuple[int, str | None]
) -> None:
    method, path = asked

    with pytest.raises(HTTPException) as refused:
        routes.find(path, method)

    assert (refused.value.status_code, (refused.value.headers or {}).get("Allow")) == refusal


def test_a_path_with_more_literal_parts_wins() -> None:
    """Whatever the order of the table: a domain may add its rows later."""
    routes = read_routes([described("GET", "/a/{x}/{y}"), described("POST", "/a/{x}/b")])

    found, in_path = routes.find("/a/1/b", "POST")

    assert (found.path, in_path) == ("/a/{x}/b", {"x": "1"})
