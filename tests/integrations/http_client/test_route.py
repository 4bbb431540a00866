"""What goes over the wire, and what nobody can put into it."""

import pytest

from penstock.integrations.http_client import BadHeader, parse_target, prepare_route
from penstock.integrations.http_client.route import OURS, encode_request

TARGET = parse_target("https://example.com:8443/hook?a=1")

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


def test_a_request_is_written_in_one_piece() -> None:
    route = prepare_route(TARGET, [("Content-Type", "application/json")])

    request = encode_request(route, [("webhook-id", "msg_1")], b'{"a":1}')

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


def test_an_empty_body_is_told_too() -> None:
    assert encode_request(prepare_route(TARGET), (), b"").endswith(b"Content-Length: 0\r\n\r\n")


@pytest.mark.parametrize("value", BAD_VALUES)
def test_a_value_cannot_end_its_line(value: str) -> None:
    """Otherwise whoever chooses a value chooses further headers, or a whole second request."""
    with pytest.raises(BadHeader):
        prepare_route(TARGET, [("X-Note", value)])
    with pytest.raises(BadHeader):
        encode_request(prepare_route(TARGET), [("X-Note", value)], b"")


@pytest.mark.parametrize("name", [*BAD_NAMES, *OURS, "Content-Length", "HOST", "Transfer-encoding"])
def test_a_name_is_a_token_and_not_one_of_ours(name: str) -> None:
    with pytest.raises(BadHeader):
        prepare_route(TARGET, [(name, "1")])
    with pytest.raises(BadHeader):
        encode_request(prepare_route(TARGET), [(name, "1")], b"")


def test_whole_lines_are_sent_as_they_are() -> None:
    """Who signs every request has them at hand as bytes."""
    lines = b"webhook-id: msg_1\r\nwebhook-signature: v1,a= v1,b=\r\nX-Empty: \r\n"

    request = encode_request(prepare_route(TARGET), lines, b"{}")

    assert lines + b"Content-Length: 2\r\n\r\n{}" in request
    assert request == encode_request(
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
def test_lines_cannot_end_the_head_or_move_the_body(lines: bytes) -> None:
    with pytest.raises(BadHeader):
        encode_request(prepare_route(TARGET), lines, b"")


def test_the_refusal_does_not_tell_the_value() -> None:
    with pytest.raises(BadHeader) as refused:
        prepare_route(TARGET, [("Authorization", "Bearer s3cret\n")])

    assert refused.value.name == "Authorization"
    assert "s3cret" not in str(refused.value)


def test_a_route_does_not_print_its_headers() -> None:
    route = prepare_route(TARGET, [("Authorization", "Bearer s3cret")])

    assert "s3cret" not in repr(route)
