"""Reading URLs: what passes comes out in one spelling, and what is doubtful does not pass."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.integrations.http_client import BadTarget, parse_target
from tests.integrations.http_client.vectors import REFUSED_URLS


@pytest.mark.parametrize("url", REFUSED_URLS)
def test_a_url_that_can_be_read_in_two_ways_is_refused(url: str) -> None:
    with pytest.raises(BadTarget) as refused:
        parse_target(url)

    assert refused.value.reason
    assert str(refused.value) == refused.value.reason


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
def test_a_sound_url_comes_out_in_its_parts(url: str, parts: tuple[str, str, bytes]) -> None:
    target = parse_target(url)

    assert (target.origin, target.host_header, target.path_and_query) == parts


def test_a_host_that_is_an_address_is_known_as_one() -> None:
    assert parse_target("http://8.8.8.8./").address == "8.8.8.8"
    assert parse_target("http://[2606:4700::0001]/").address == "2606:4700::1"
    assert parse_target("http://example.com/").address is None


def test_only_open_ports_are_taken() -> None:
    parse_target("https://example.com/", ports={443})

    with pytest.raises(BadTarget, match="port 8080"):
        parse_target("https://example.com:8080/", ports={443})


def test_the_longest_url_is_taken() -> None:
    longest = "https://example.com/".ljust(2_048, "a")

    assert len(parse_target(longest).path_and_query) == 2_048 - len("https://example.com")
    with pytest.raises(BadTarget, match="2048"):
        parse_target(longest + "a")


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
def test_the_reason_tells_what_to_do_and_no_secret(url: str, hint: str) -> None:
    with pytest.raises(BadTarget) as refused:
        parse_target(url)

    assert hint in refused.value.reason
    assert "secret" not in refused.value.reason


def test_a_path_is_not_printed() -> None:
    """With many services the path is the password."""
    assert "T0K3N" not in repr(parse_target("https://example.com/services/T0K3N"))


@given(
    st.text(max_size=40),
    st.sampled_from(["", "http://", "https://a/", "http://a@", "http://[", "http://a:"]),
)
def test_nothing_but_bad_target_is_ever_raised(text: str, prefix: str) -> None:
    """The URL is a stranger's; any other exception would be a bug that they can trigger."""
    try:
        target = parse_target(prefix + text)
    except BadTarget:
        return
    assert target.host.isascii()
    assert target.path_and_query.isascii()
    assert not set(target.path_and_query) & set(b" \r\n\x00\\")
