"""Requests as bytes, and header injection that is refused."""

import pytest

from penstock.base.errors import InvalidInput
from penstock.integrations.http_client import parse_url, prepare_route
from penstock.integrations.http_client.request import CLIENT_HEADERS, encode_get, encode_post

TARGET = parse_url("https://example.com:8443/hook?a=1")

BAD_VALUES = [
    "a\r\nX: y",
    "a\nX: y",
    "a\rb",
    "a\x00b",
    "\x1b",
    "\x7f",
    "\t",
    "é",
    "a\u2028b",
    "\r\n\r\n",
]
BAD_NAMES = ["", " ", "a b", "a:", "a\r\nX", "a\n", "a\x00", "é", "(a)", "a,b", "a" * 101]


def test_a_post_is_encoded_in_one_piece() -> None:
    route = prepare_route(TARGET, [("Content-Type", "application/json")])

    request = encode_post(route, [("webhook-id", "msg_1")], b'{"a":1}')

    assert request == (
        b"POST /hook?a=1 HTTP/1.1\r\n"
        b"Host: example.com:8443\r\n"
        b"Accept-Encoding: identity\r\n"
        b"Content-Type: application/json\r\n"
        b"webhook-id: msg_1\r\n"
        b"Content-Length: 7\r\n"
        b"\r\n"
        b'{"a":1}'
    )


def test_a_get_has_no_body_and_no_length() -> None:
    route = prepare_route(TARGET, [("Accept", "application/json")])

    assert encode_get(route, [("X-Id", "1")]) == (
        b"GET /hook?a=1 HTTP/1.1\r\n"
        b"Host: example.com:8443\r\n"
        b"Accept-Encoding: identity\r\n"
        b"Accept: application/json\r\n"
        b"X-Id: 1\r\n"
        b"\r\n"
    )


def test_an_empty_body_has_a_length() -> None:
    assert encode_post(prepare_route(TARGET), (), b"").endswith(b"Content-Length: 0\r\n\r\n")


@pytest.mark.parametrize("value", BAD_VALUES)
def test_a_value_cannot_end_its_line(value: str) -> None:
    """Otherwise a value could add headers, or a second request."""
    with pytest.raises(InvalidInput):
        prepare_route(TARGET, [("X-Note", value)])
    with pytest.raises(InvalidInput):
        encode_post(prepare_route(TARGET), [("X-Note", value)], b"")


@pytest.mark.parametrize(
    "name", [*BAD_NAMES, *sorted(CLIENT_HEADERS), "Content-Length", "HOST", "Transfer-encoding"]
)
def test_a_name_is_a_token_that_the_client_does_not_set(name: str) -> None:
    with pytest.raises(InvalidInput):
        prepare_route(TARGET, [(name, "1")])
    with pytest.raises(InvalidInput):
        encode_post(prepare_route(TARGET), [(name, "1")], b"")


def test_encoded_lines_are_sent_unchanged() -> None:
    """A caller that signs every request has them as bytes."""
    lines = b"webhook-id: msg_1\r\nwebhook-signature: v1,a= v1,b=\r\nX-Empty: \r\n"

    request = encode_post(prepare_route(TARGET), lines, b"{}")

    assert lines + b"Content-Length: 2\r\n\r\n{}" in request
    assert request == encode_post(
        prepare_route(TARGET),
        [("webhook-id", "msg_1"), ("webhook-signature", "v1,a= v1,b="), ("X-Empty", "")],
        b"{}",
    )


@pytest.mark.parametrize(
    "lines",
    [
        b"\r\n", b"a: b", b"a: b\n", b"a: b\r", b"a: b\r\n\r\n", b"a: b\r\n\r\nGET / HTTP/1.1\r\n",
        b"a: b\r\n c\r\n", b"a: b\x00\r\n", b"a: \xff\r\n", b"a b: c\r\n", b": c\r\n", b"a:b\r\n",
        b"a: b\rc: d\r\n", b"a: b\nc: d\r\n", b"content-length: 0\r\n", b"a: b\r\nHOST: c\r\n",
        b"a: b\r\nTransfer-Encoding: chunked\r\n", b"te: trailers\r\n", b"a: b\r\nc",
    ],
)  # fmt: skip
def test_encoded_lines_cannot_end_the_head_or_move_the_body(lines: bytes) -> None:
    with pytest.raises(InvalidInput):
        encode_post(prepare_route(TARGET), lines, b"")


def test_the_error_does_not_contain_the_value() -> None:
    with pytest.raises(InvalidInput) as refused:
        prepare_route(TARGET, [("Authorization", "Bearer s3cret\n")])

    assert refused.value.field == "headers.Authorization"
    assert "s3cret" not in str(refused.value)


def test_a_routes_repr_does_not_contain_its_headers() -> None:
    route = prepare_route(TARGET, [("Authorization", "Bearer s3cret")])

    assert "s3cret" not in repr(route)
