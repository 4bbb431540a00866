"""Parsing URLs: accepted ones are normalised, ambiguous ones are refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.errors import InvalidInput
from penstock.integrations.http_client import parse_url
from tests.integrations.http_client.vectors import REFUSED_URLS


@pytest.mark.parametrize("url", REFUSED_URLS)
def test_an_ambiguous_url_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_url(url)

    assert refused.value.reason
    assert refused.value.field == "url"


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("http://example.com", ("http://example.com:80", "example.com", b"/")),
        ("https://example.com/", ("https://example.com:443", "example.com", b"/")),
        ("HTTPS://Example.COM./Hook", ("https://example.com:443", "example.com", b"/Hook")),
        ("http://example.com:443/", ("http://example.com:443", "example.com:443", b"/")),
        ("http://example.com:80/", ("http://example.com:80", "example.com", b"/")),
        ("https://example.com?x=1", ("https://example.com:443", "example.com", b"/?x=1")),
        ("http://example.com/a?b=/d?e", ("http://example.com:80", "example.com", b"/a?b=/d?e")),
        ("http://example.com/a#token", ("http://example.com:80", "example.com", b"/a")),
        ("http://example.com#@evil", ("http://example.com:80", "example.com", b"/")),
        ("http://example.com/a/../b//", ("http://example.com:80", "example.com", b"/a/../b//")),
        (
            "http://example.com/%2e?a[]=%20",
            ("http://example.com:80", "example.com", b"/%2e?a[]=%20"),
        ),
        ("http://example.com/u@h:p", ("http://example.com:80", "example.com", b"/u@h:p")),
        ("http://a_b.example:8080/", ("http://a_b.example:8080", "a_b.example:8080", b"/")),
        ("http://xn--bcher-kva.de/", ("http://xn--bcher-kva.de:80", "xn--bcher-kva.de", b"/")),
        ("http://receiver:1/", ("http://receiver:1", "receiver:1", b"/")),
        ("http://1e100.net:65535/", ("http://1e100.net:65535", "1e100.net:65535", b"/")),
        ("http://8.8.8.8/", ("http://8.8.8.8:80", "8.8.8.8", b"/")),
        ("http://8.8.8.8.:81/", ("http://8.8.8.8:81", "8.8.8.8:81", b"/")),
        ("http://[2606:0:0::11]:81/", ("http://[2606::11]:81", "[2606::11]:81", b"/")),
    ],
)
def test_a_valid_url_is_split_into_its_parts(url: str, parts: tuple[str, str, bytes]) -> None:
    target = parse_url(url)

    assert (target.origin, target.host_header, target.path_and_query) == parts


def test_a_host_that_is_an_address_is_recognised() -> None:
    assert parse_url("http://8.8.8.8./").address == "8.8.8.8"
    assert parse_url("http://[2606:4700::0001]/").address == "2606:4700::1"
    assert parse_url("http://example.com/").address is None


def test_only_allowed_ports_are_accepted() -> None:
    parse_url("https://example.com/", ports={443})

    with pytest.raises(InvalidInput, match="port 8080"):
        parse_url("https://example.com:8080/", ports={443})


def test_the_longest_url_is_accepted() -> None:
    longest = "https://example.com/".ljust(2_048, "a")

    assert len(parse_url(longest).path_and_query) == 2_048 - len("https://example.com")
    with pytest.raises(InvalidInput, match="2048"):
        parse_url(longest + "a")


@pytest.mark.parametrize(
    ("url", "hint"),
    [
        ("ftp://example.com/", "http:// or https://"),
        ("https://bücher.example/", "punycode"),
        ("https://user:secret@example.com/", "header"),
        ("https://127.1/", "ends in a number"),
        ("https://example.com/{id}", "{"),
    ],
)
def test_the_reason_says_what_to_do_and_contains_no_secret(url: str, hint: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_url(url)

    assert hint in refused.value.reason
    assert "secret" not in refused.value.reason


def test_the_path_is_not_in_the_repr() -> None:
    """For many services the path contains the token."""
    assert "T0K3N" not in repr(parse_url("https://example.com/services/T0K3N"))


@given(
    st.text(max_size=40),
    st.sampled_from(["", "http://", "https://a/", "http://a@", "http://[", "http://a:"]),
)
def test_only_invalid_input_is_ever_raised(text: str, prefix: str) -> None:
    """The URL comes from outside; another exception would be a bug that anybody can trigger."""
    try:
        target = parse_url(prefix + text)
    except InvalidInput:
        return
    assert target.host.isascii()
    assert target.path_and_query.isascii()
    assert not set(target.path_and_query) & set(b" \r\n\x00\\")
