"""Parse URLs strictly and encode requests. Touches no network.

A URL that two programs could read differently is refused. What all requests to one URL share is
encoded once, in a `Route`.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from ipaddress import AddressValueError, IPv4Address, IPv6Address

from penstock.base.errors import InvalidInput

URL_LENGTH_MAX = 2_048  # Browsers, proxies and log lines accept this much.
HOST_LENGTH_MAX = 253  # The limit of DNS.
HEADER_NAME_LENGTH_MAX = 100
DEFAULT_PORTS = {"http": 80, "https": 443}

# These decide where a message ends and where it goes: setting one allows request smuggling.
CLIENT_HEADERS = frozenset(
    {
        "accept-encoding", "connection", "content-length", "expect", "host", "keep-alive",
        "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade",
    }
)  # fmt: skip

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)([^#]*)(?:#.*)?")
_AUTHORITY = re.compile(r"(?:\[(?P<literal>[^\[\]]*)\]|(?P<name>[^:\[\]]*))(?::(?P<port>.*))?")
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_PORT = re.compile(r"[1-9][0-9]{0,4}")
_BLANK = re.compile(r"[\x00-\x20\x7f]")
_UNSAFE = re.compile(r'["<>\\^`{|}]')
_BROKEN_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
_TOKEN = re.compile(rf"[!#$%&'*+.^_`|~0-9A-Za-z-]{{1,{HEADER_NAME_LENGTH_MAX}}}")
_HEADER_LINES = re.compile(
    rf"(?:(?!(?i:{'|'.join(sorted(CLIENT_HEADERS))}):)"
    rf"{_TOKEN.pattern}+: [\x20-\x7e]*+\r\n)*+".encode()
)

# Pairs of name and value, or complete header lines that the caller has already encoded.
Headers = bytes | Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The parts of a URL. `address` is the host if the host is an IP address, else None.

    `path_and_query` goes into the request line; it may contain a token and is not in the repr.
    """

    scheme: str
    host: str
    port: int
    path_and_query: bytes = field(repr=False)
    address: str | None

    @property
    def is_tls(self) -> bool:
        """Return whether the scheme is https."""
        return self.scheme == "https"

    @property
    def host_header(self) -> str:
        """Return the value of the Host header."""
        host = _bracketed(self.host)
        return host if self.port == DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def origin(self) -> str:
        """Return scheme, host and port: requests with the same origin may share a connection."""
        return f"{self.scheme}://{_bracketed(self.host)}:{self.port}"


@dataclass(frozen=True, slots=True)
class Route:
    """A target and the part of the request head that all its requests share, any method."""

    target: Target
    origin: str
    head: bytes = field(repr=False)  # From the path on. Its headers may contain secrets.


def parse_url(url: str, *, ports: Collection[int] | None = None) -> Target:
    """Return the parts of a URL; raises InvalidInput. `ports`, if given, are the only ones allowed.

    Nothing is resolved: `localhost` is a name like any other here. A fragment is dropped.
    """
    _check_characters(url)
    matched = _URL.fullmatch(url)
    scheme = matched[1].lower() if matched else ""
    if matched is None or scheme not in DEFAULT_PORTS:
        raise _bad_url("must begin with http:// or https://")
    host, address, port_text = _parse_authority(matched[2])
    port = DEFAULT_PORTS[scheme] if port_text is None else _parse_port(port_text)
    if ports is not None and port not in ports:
        raise _bad_url(f"port {port} is not one of the allowed ports")
    return Target(
        scheme=scheme,
        host=host,
        port=port,
        path_and_query=_parse_path(matched[3]),
        address=address,
    )


def prepare_route(target: Target, headers: Sequence[tuple[str, str]] = ()) -> Route:
    """Encode what all requests to `target` share. Raises InvalidInput for a header.

    The client adds Host, Accept-Encoding and Content-Length; they are refused in `headers`.
    """
    head = (
        b"%b HTTP/1.1\r\nHost: %b\r\nAccept-Encoding: identity\r\n%b"
        % (target.path_and_query, target.host_header.encode(), encode_headers(headers))
    )  # fmt: skip
    return Route(target, target.origin, head)


def encode_get(route: Route, headers: Headers) -> bytes:
    """Return a complete GET request. Raises InvalidInput for a header."""
    return b"GET %b%b\r\n" % (route.head, encode_headers(headers))


def encode_post(route: Route, headers: Headers, body: bytes) -> bytes:
    """Return a complete POST request, to be sent in one write. Raises InvalidInput for a header."""
    return b"POST %b%bContent-Length: %d\r\n\r\n%b" % (
        route.head,
        encode_headers(headers),
        len(body),
        body,
    )


def encode_headers(headers: Headers) -> bytes:
    """Return header lines; raises InvalidInput, which never repeats a value: it may be a secret."""
    if isinstance(headers, bytes):
        # A line injected through a value looks like any other line, but this check makes sure that
        # none ends the head or changes where the body ends. It takes 1 µs.
        if not _HEADER_LINES.fullmatch(headers):
            raise InvalidInput(
                "headers", "must be complete header lines, without those that the client sets"
            )
        return headers
    lines = ""
    for name, value in headers:
        # Printable ASCII has no CR, LF or NUL. These two calls cost less than a regex.
        if not (value.isascii() and value.isprintable()):
            raise _bad_header(name, "the value contains a character that is not printable ASCII")
        lines += f"{_checked_name(name)}: {value}\r\n"
    return lines.encode()


@lru_cache(maxsize=1_024)  # Callers use the same few names for every request.
def _checked_name(name: str) -> str:
    if not _TOKEN.fullmatch(name):
        raise _bad_header(name, "the name is not a valid header name")
    if name.lower() in CLIENT_HEADERS:
        raise _bad_header(name, "this header is set by the client itself")
    return name


def _bad_url(reason: str) -> InvalidInput:
    return InvalidInput("url", reason)


def _bad_header(name: str, reason: str) -> InvalidInput:
    return InvalidInput(f"headers.{name[:HEADER_NAME_LENGTH_MAX]}", reason)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _check_characters(url: str) -> None:
    if len(url) > URL_LENGTH_MAX:
        raise _bad_url(f"is longer than {URL_LENGTH_MAX} characters")
    if not url.isascii():
        # Programs map such hosts differently; some turn full-width digits into an address.
        raise _bad_url(
            "contains a character outside ASCII; write the host in punycode (xn--…) "
            "and percent-encode the rest"
        )
    if _BLANK.search(url):
        raise _bad_url("contains white space or a control character")
    if unsafe := _UNSAFE.search(url):
        raise _bad_url(f"contains the character {unsafe[0]}, which must be percent-encoded")


def _parse_authority(authority: str) -> tuple[str, str | None, str | None]:
    """Return the host, the host again if it is an address, and the text of the port."""
    if "@" in authority:
        raise _bad_url("contains a user name or password; send credentials in a header")
    if "%" in authority:
        raise _bad_url("contains a percent sign in its host")
    matched = _AUTHORITY.fullmatch(authority)
    if matched is None:
        raise _bad_url("has a host that is neither a name nor an address")
    literal, name, port = matched.group("literal", "name", "port")
    if literal is not None:
        host = address = _parse_ipv6(literal)
    else:
        host, address = _parse_name(name)
    return host, address, port


def _parse_ipv6(literal: str) -> str:
    try:
        return str(IPv6Address(literal))
    except AddressValueError as refused:
        raise _bad_url("has a host in brackets that is not an IPv6 address") from refused


def _parse_name(text: str) -> tuple[str, str | None]:
    name = text.lower().removesuffix(".")
    if not name:
        raise _bad_url("has no host")
    labels = name.split(".")
    if len(name) > HOST_LENGTH_MAX or not all(_LABEL.fullmatch(label) for label in labels):
        raise _bad_url("has a host that is neither a name nor an address")
    if not _NUMBER.fullmatch(labels[-1]):
        return name, None
    # Resolvers read 127.1, 0177.0.0.1, 0x7f.1 and 2130706433 as loopback. No top-level domain is a
    # number, so a host that ends in one is a dotted quad or a disguised address.
    try:
        return name, str(IPv4Address(name))
    except AddressValueError as refused:
        raise _bad_url(
            "has a host that ends in a number and is not an IPv4 address such as 198.51.100.7"
        ) from refused


def _parse_port(text: str) -> int:
    if not _PORT.fullmatch(text) or int(text) > 65_535:
        raise _bad_url("has a port that is not a number from 1 to 65535")
    return int(text)


def _parse_path(rest: str) -> bytes:
    if _BROKEN_PERCENT.search(rest):
        raise _bad_url("has a percent sign that is not followed by two hexadecimal digits")
    return (rest if rest.startswith("/") else f"/{rest}").encode()
