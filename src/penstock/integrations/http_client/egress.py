"""Egress rules (SSRF protection): public unicast addresses, and networks that the operator allows.

It has its own table, because `ipaddress.is_global` differs between Python releases and is true for
addresses that can lead into the internal network, such as anycast services and NAT64.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

Network = IPv4Network | IPv6Network

# From the IANA special-purpose registries; where networks overlap, the first match counts.
_SPECIAL_IPV4 = {
    "0.0.0.0/8": "this network",
    "10.0.0.0/8": "a private network",
    "100.64.0.0/10": "a carrier's internal network",
    "127.0.0.0/8": "loopback",
    "168.63.129.16/32": "a cloud platform's internal service",  # Local inside Azure.
    "169.254.0.0/16": "link-local, used for cloud metadata",
    "172.16.0.0/12": "a private network",
    "192.0.0.0/24": "IETF protocol assignments",  # Some are anycast to a gateway.
    "192.0.2.0/24": "documentation",
    "192.31.196.0/24": "AS112 anycast",  # Any network may announce these three.
    "192.52.193.0/24": "AMT anycast",
    "192.88.99.0/24": "6to4 relay anycast",
    "192.168.0.0/16": "a private network",
    "192.175.48.0/24": "AS112 anycast",
    "198.18.0.0/15": "benchmarking",
    "198.51.100.0/24": "documentation",
    "203.0.113.0/24": "documentation",
    "224.0.0.0/4": "multicast",
    "255.255.255.255/32": "broadcast",
    "240.0.0.0/4": "reserved",
}
_SPECIAL_IPV6 = {
    "::/128": "the unspecified address",
    "::1/128": "loopback",
    "::/96": "an IPv4-compatible address",
    "::ffff:0:0:0/96": "an IPv4-translated address",
    "64:ff9b::/96": "NAT64",
    "64:ff9b:1::/48": "local-use NAT64",
    "100::/64": "discard-only",
    "100:0:0:1::/64": "a dummy prefix",
    "2001::/32": "Teredo",
    "2001:2::/48": "benchmarking",
    "2001:10::/28": "ORCHID",
    "2001:20::/28": "ORCHIDv2",
    "2001::/23": "IETF protocol assignments",
    "2001:db8::/32": "documentation",
    "2002::/16": "6to4",
    "2620:4f:8000::/48": "AS112 anycast",
    "3ffe::/16": "the former 6bone",
    "3fff::/20": "documentation",
    "5f00::/16": "SRv6 segments",
    "fc00::/7": "a private network",
    "fe80::/10": "link-local",
    "fec0::/10": "site-local",
    "ff00::/8": "multicast",
}

IPV4_RESERVED = tuple((IPv4Network(text), reason) for text, reason in _SPECIAL_IPV4.items())
IPV6_RESERVED = tuple((IPv6Network(text), reason) for text, reason in _SPECIAL_IPV6.items())
IPV6_UNICAST = IPv6Network("2000::/3")  # IANA has allocated nothing else as global unicast.

_MAPPED = IPv6Network("::ffff:0:0/96")
_COMPATIBLE = IPv6Network("::/96")
_NAT64 = IPv6Network("64:ff9b::/96")
_6TO4 = IPv6Network("2002::/16")
_TEREDO = IPv6Network("2001::/32")


@dataclass(eq=False)
class EgressRefused(Exception):
    """The address or port is not allowed. The text gives the reason, but not the address.

    The user who configured a name must not learn which addresses internal DNS returns for it.
    """

    address: str
    reason: str

    def __str__(self) -> str:
        return f"may not be reached: {self.reason}"


@dataclass(frozen=True, slots=True)
class Egress:
    """Checks addresses and ports; the resolver checks every address of a name.

    `allow` lists networks that are allowed besides public ones; `ports`, if given, the only ports.
    """

    allow: Sequence[Network] = ()
    ports: frozenset[int] | None = None

    def check(self, address: str) -> None:
        """Raise EgressRefused unless the address is public unicast or in an allowed network."""
        reason = self._refusal(address)
        if reason is not None:
            raise EgressRefused(address, reason)

    def check_port(self, port: int) -> None:
        """Raise EgressRefused for a port that is not allowed."""
        if self.ports is not None and port not in self.ports:
            raise EgressRefused(str(port), f"port {port} is not one of the allowed ports")

    def _refusal(self, text: str) -> str | None:
        if "%" in text:
            # A zone selects a local interface; public addresses have none.
            return "the address has a zone"
        try:
            address = ip_address(text)
        except ValueError:
            return "not an address"
        if isinstance(address, IPv4Address):
            return self._refusal_of_ipv4(address)
        embedding = _embedding_of(address)
        if embedding is None:
            return None if self._is_allowed(address) else _special_ipv6(address)
        return self._refusal_of_embedded(embedding, address)

    def _refusal_of_ipv4(self, address: IPv4Address) -> str | None:
        if self._is_allowed(address):
            return None
        return next((reason for network, reason in IPV4_RESERVED if address in network), None)

    def _refusal_of_embedded(self, embedding: "_Embedding", address: IPv6Address) -> str | None:
        """Check an IPv6 address that contains an IPv4 address.

        A mapped one is that IPv4 address: the kernel opens an IPv4 connection. All others pass a
        gateway (NAT64, 6to4, Teredo) and are refused until their range is allowed. Even then the
        IPv4 address must be allowed by itself: allowing NAT64 for an IPv6-only network must not
        allow 64:ff9b::169.254.169.254.
        """
        if self._is_allowed(address, prefix_min=embedding.network.prefixlen + 1):
            return None  # A network within the range also names the IPv4 address.
        if embedding.network is not _MAPPED and not self._is_allowed(address):
            return _special_ipv6(address)
        return self._refusal_of_ipv4(embedding.inner)

    def _is_allowed(self, address: IPv4Address | IPv6Address, *, prefix_min: int = 0) -> bool:
        return any(
            network.version == address.version
            and network.prefixlen >= prefix_min
            and address in network
            for network in self.allow
        )


@dataclass(frozen=True, slots=True)
class _Embedding:
    """An IPv6 range whose addresses contain an IPv4 address, and the one of this address."""

    network: IPv6Network
    inner: IPv4Address


def _embedding_of(address: IPv6Address) -> _Embedding | None:
    number = int(address)
    last = IPv4Address(number & 0xFFFF_FFFF)
    if address in _MAPPED:
        return _Embedding(_MAPPED, last)
    if address in _COMPATIBLE and number > 1:  # Not :: and ::1.
        return _Embedding(_COMPATIBLE, last)
    if address in _NAT64:
        return _Embedding(_NAT64, last)
    if address in _6TO4:
        return _Embedding(_6TO4, IPv4Address(number >> 80 & 0xFFFF_FFFF))
    if address in _TEREDO:
        return _Embedding(_TEREDO, IPv4Address(int(last) ^ 0xFFFF_FFFF))  # Stored inverted.
    return None


def _special_ipv6(address: IPv6Address) -> str | None:
    for network, reason in IPV6_RESERVED:
        if address in network:
            return reason
    return None if address in IPV6_UNICAST else "outside of global unicast"
