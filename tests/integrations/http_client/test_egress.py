"""Egress rules: which addresses are allowed, with one case for each known trick."""

from collections.abc import Iterator
from ipaddress import (
    IPv4Network,
    IPv6Network,
    ip_address,
    ip_network,
)

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.integrations.http_client import Egress, EgressRefused
from penstock.integrations.http_client.egress import IPV4_RESERVED, IPV6_RESERVED
from tests.integrations.http_client.vectors import ALLOWED_ADDRESSES, REFUSED_ADDRESSES

# Python calls these global, in one release or another; the table refuses them.
STRICTER = [
    ip_network(text)
    for text in (
        "168.63.129.16/32", "192.0.0.0/24", "192.31.196.0/24", "192.52.193.0/24",
        "192.88.99.0/24", "192.175.48.0/24", "224.0.0.0/4", "::/96", "::ffff:0:0:0/96",
        "64:ff9b::/96", "64:ff9b:1::/48", "100:0:0:1::/64", "2001::/23", "2002::/16",
        "2620:4f:8000::/48", "3ffe::/16", "3fff::/20", "5f00::/16", "fec0::/10", "ff00::/8",
    )
]  # fmt: skip
UNICAST = ip_network("2000::/3")


def is_refused(address: str, egress: Egress | None = None) -> bool:
    try:
        (egress or Egress()).check(address)
    except EgressRefused:
        return True
    return False


@pytest.mark.parametrize("address", REFUSED_ADDRESSES)
def test_an_address_that_is_not_public_is_refused(address: str) -> None:
    with pytest.raises(EgressRefused) as refused:
        Egress().check(address)

    assert refused.value.address == address
    assert refused.value.reason


@pytest.mark.parametrize("address", ALLOWED_ADDRESSES)
def test_a_public_address_is_allowed(address: str) -> None:
    """A rule that refuses everything is safe and useless."""
    Egress().check(address)


def test_the_refusal_does_not_repeat_the_address() -> None:
    """Users see the text, and must not learn what internal DNS returns."""
    with pytest.raises(EgressRefused) as refused:
        Egress().check("10.20.30.40")

    assert "10.20.30.40" not in str(refused.value)


def edges() -> Iterator[str]:
    """Yield the first and the last address of each special network, and their neighbours."""
    for network, _ in (*IPV4_RESERVED, *IPV6_RESERVED):
        first, last = int(network.network_address), int(network.broadcast_address)
        for number in (first - 1, first, last, last + 1):
            if 0 <= number < 2**network.max_prefixlen:
                yield str(type(network.network_address)(number))


def agrees_with_python(text: str) -> None:
    """Assert that nothing passes that Python calls special, nor is refused without being listed."""
    address = ip_address(text)
    if not is_refused(text):
        assert address.is_global
    elif address.is_global:
        is_known = any(
            address in network for network in STRICTER if network.version == address.version
        )
        assert is_known or (address.version == 6 and address not in UNICAST)


@pytest.mark.parametrize("address", [*ALLOWED_ADDRESSES, *edges()])
def test_the_table_agrees_with_pythons_where_it_should(address: str) -> None:
    agrees_with_python(address)


@given(st.ip_addresses())
def test_the_table_agrees_with_pythons_anywhere(address: object) -> None:
    agrees_with_python(str(address))


@pytest.mark.parametrize(
    ("allow", "address"),
    [
        ("127.0.0.0/8", "127.0.0.1"),
        ("10.0.0.0/8", "10.1.2.3"),
        ("10.0.0.0/8", "::ffff:10.1.2.3"),
        ("::ffff:10.0.0.0/104", "::ffff:10.1.2.3"),
        ("fd00::/8", "fd12::1"),
        ("::1/128", "::1"),
        ("fe80::/10", "fe80::1"),
        ("64:ff9b::/96", "64:ff9b::8.8.8.8"),
        ("64:ff9b::10.0.0.0/104", "64:ff9b::10.1.2.3"),
        ("64:ff9b:1::/48", "64:ff9b:1::1"),
        ("2002:a00::/24", "2002:a00:1::1"),
        ("0.0.0.0/0", "169.254.169.254"),
    ],
)
def test_the_operator_may_allow_a_network(allow: str, address: str) -> None:
    """A receiver in the same cluster may be intended."""
    assert is_refused(address)
    assert not is_refused(address, Egress([ip_network(allow)]))


@pytest.mark.parametrize(
    ("allow", "address"),
    [
        ("10.0.0.0/8", "192.168.0.1"),
        ("10.0.0.0/8", "::10.0.0.1"),
        ("10.0.0.0/8", "64:ff9b::10.0.0.1"),
        ("10.0.0.0/8", "2002:a00:1::1"),
        ("64:ff9b::/96", "64:ff9b::169.254.169.254"),
        ("64:ff9b::/96", "64:ff9b::127.0.0.1"),
        ("2002::/16", "2002:7f00:1::1"),
        ("2001::/32", "2001::80ff:fffe"),
        ("::/0", "::ffff:127.0.0.1"),
        ("::/0", "64:ff9b::10.0.0.1"),
        ("fe80::/10", "fe80::1%eth0"),
        ("127.0.0.0/8", "::1"),
    ],
)
def test_an_allowed_network_allows_nothing_else(allow: str, address: str) -> None:
    """An allowed gateway to IPv4 must not bypass the table of IPv4."""
    assert is_refused(address, Egress([ip_network(allow)]))


def test_a_private_address_behind_nat64_needs_both_networks() -> None:
    both = Egress([ip_network("64:ff9b::/96"), ip_network("10.0.0.0/8")])

    assert not is_refused("64:ff9b::10.0.0.1", both)


def test_a_list_of_ports_refuses_all_others() -> None:
    egress = Egress(ports=frozenset({443, 8443}))

    egress.check_port(443)
    with pytest.raises(EgressRefused, match="port 25"):
        egress.check_port(25)
    Egress().check_port(25)


def test_the_table_holds_no_network_that_cannot_match() -> None:
    """A broad network before a narrow one would hide the narrow one's reason."""
    for table in (IPV4_RESERVED, IPV6_RESERVED):
        seen: list[IPv4Network | IPv6Network] = []
        for network, _ in table:
            assert not any(network.subnet_of(earlier) for earlier in seen)  # pyright: ignore[reportArgumentType]
            seen.append(network)
