"""Read the URL of a receiver, strictly: where two programs could read it differently, refuse it."""

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from ipaddress import AddressValueError, IPv4Address, IPv6Address

URL_LENGTH_MAX = 2_048  # What browsers, proxies and log lines take without trouble.
HOST_LENGTH_MAX = 253  # DNS has no longer names.
DEFAULT_PORTS = {"http": 80, "https": 443}

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)([^#]*)(?:#.*)?")
_AUTHORITY = re.compile(r"(?:\[(?P<literal>[^\[\]]*)\]|(?P<name>[^:\[\]]*))(?::(?P<port>.*))?")
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_PORT = re.compile(r"[1-9][0-9]{0,4}")
_BLANK = re.compile(r"[\x00-\x20\x7f]")
_UNSAFE = re.compile(r'["<>\\^`{|}]')
_BROKEN_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")


@dataclass(eq=False)
class BadTarget(ValueError):
    """The URL is refused; `reason` fits behind the name of the field that held it."""

    reason: str

    def __str__(self) -> str:
        return self.reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A URL in its parts. `address` is the host if that is an address and not a name.

    `path_and_query` is what the request line carries; it may hold a token and is not printed.
    """

    scheme: str
    host: str
    port: int
    path_and_query: bytes = field(repr=False)
    address: str | None

    @property
    def is_tls(self) -> bool:
        """Tell whether the connection is encrypted."""
        return self.scheme == "https"

    @property
    def host_header(self) -> str:
        """Return the host as the Host header names it."""
        host = _bracketed(self.host)
        return host if self.port == DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def origin(self) -> str:
        """Return what requests must share to share a connection."""
        return f"{self.scheme}://{_bracketed(self.host)}:{self.port}"


def parse_target(url: str, *, ports: Collection[int] | None = None) -> Target:
    """Return the parts of a URL, or raise BadTarget. `ports`, if given, are the only ones taken.

    Nothing is looked up: `localhost` is a name like any other here. A fragment is dropped.
    """
    _check_characters(url)
    matched = _URL.fullmatch(url)
    scheme = matched[1].lower() if matched else ""
    if matched is None or scheme not in DEFAULT_PORTS:
        raise BadTarget("must begin with http:// or https://")
    host, address, port_text = _read_authority(matched[2])
    port = DEFAULT_PORTS[scheme] if port_text is None else _read_port(port_text)
    if ports is not None and port not in ports:
        raise BadTarget(f"port {port} is not one of those that are open")
    return Target(
        scheme=scheme,
        host=host,
        port=port,
        path_and_query=_read_path(matched[3]),
        address=address,
    )


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _check_characters(url: str) -> None:
    if len(url) > URL_LENGTH_MAX:
        raise BadTarget(f"is longer than {URL_LENGTH_MAX} characters")
    if not url.isascii():
        # Programs differ in what they make of such hosts; some turn full-width digits into an
        # address. Whoever owns the name knows its one spelling in ASCII.
        raise BadTarget(
            "has a character outside of ASCII; write the host in punycode (xn--…) "
            "and percent-encode the rest"
        )
    if _BLANK.search(url):
        raise BadTarget("has white space or a control character")
    if unsafe := _UNSAFE.search(url):
        raise BadTarget(f"has the character {unsafe[0]} and must percent-encode it")


def _read_authority(authority: str) -> tuple[str, str | None, str | None]:
    """Return the host, the same again if it is an address, and the text of the port."""
    if "@" in authority:
        raise BadTarget("has a user name or password; send credentials in a header")
    if "%" in authority:
        raise BadTarget("has a percent sign in its host")
    matched = _AUTHORITY.fullmatch(authority)
    if matched is None:
        raise BadTarget("has a host that is neither a name nor an address")
    literal, name, port = matched.group("literal", "name", "port")
    if literal is not None:
        host = address = _read_ipv6(literal)
    else:
        host, address = _read_name(name)
    return host, address, port


def _read_ipv6(literal: str) -> str:
    try:
        return str(IPv6Address(literal))
    except AddressValueError as refused:
        raise BadTarget("has brackets around something that is no IPv6 address") from refused


def _read_name(text: str) -> tuple[str, str | None]:
    name = text.lower().removesuffix(".")
    if not name:
        raise BadTarget("has no host")
    labels = name.split(".")
    if len(name) > HOST_LENGTH_MAX or not all(_LABEL.fullmatch(label) for label in labels):
        raise BadTarget("has a host that is neither a name nor an address")
    if not _NUMBER.fullmatch(labels[-1]):
        return name, None
    # Resolvers read 127.1, 0177.0.0.1, 0x7f.1 and 2130706433 as loopback. No top-level domain is
    # a number, so what ends in one is a dotted quad or an attempt to look like none.
    try:
        return name, str(IPv4Address(name))
    except AddressValueError as refused:
        raise BadTarget(
            "has a host that ends in a number and is no address such as 198.51.100.7"
        ) from refused


def _read_port(text: str) -> int:
    if not _PORT.fullmatch(text) or int(text) > 65_535:
        raise BadTarget("has a port that is not a number from 1 to 65535")
    return int(text)


def _read_path(rest: str) -> bytes:
    if _BROKEN_PERCENT.search(rest):
        raise BadTarget("has a percent sign that is not followed by two hexadecimal digits")
    return (rest if rest.startswith("/") else f"/{rest}").encode()
