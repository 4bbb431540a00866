"""Addresses as people write them, and in the one form that envelope, limits and suppression use."""

import pytest
from email_validator import exceptions
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.errors import InvalidInput
from penstock.domains.mail.address import (
    NAME_LENGTH_MAX,
    domain_of,
    make_address,
    needs_smtputf8,
    parse_address,
    parse_addresses,
    suppression_key,
)
from penstock.domains.mail.mail import Address


@pytest.mark.parametrize(
    ("text", "address", "name"),
    [
        ("ada@example.org", "ada@example.org", ""),
        ("  ada@example.org ", "ada@example.org", ""),
        ("<ada@example.org>", "ada@example.org", ""),
        ("Ada <ada@example.org>", "ada@example.org", "Ada"),
        ('"Ada" <ada@example.org>', "ada@example.org", "Ada"),
        ('"Lovelace, Ada" <ada@example.org>', "ada@example.org", "Lovelace, Ada"),
        (r'"Ada \"the <first>\" \\" <ada@example.org>', "ada@example.org", r'Ada "the <first>" \ '),
        ("Ada K. Lovelace<ada@example.org>", "ada@example.org", "Ada K. Lovelace"),
        ("Jürgen Groß <j@example.org>", "j@example.org", "Jürgen Groß"),
        ("Ada+Tag@Example.ORG", "Ada+Tag@example.org", ""),
        ("info@münchen.de", "info@xn--mnchen-3ya.de", ""),
        ("info@xn--mnchen-3ya.de", "info@xn--mnchen-3ya.de", ""),
        ("jürgen@münchen.de", "jürgen@xn--mnchen-3ya.de", ""),
        ("ju\u0308rgen@example.org", "jürgen@example.org", ""),
        ("ada@shop.test", "ada@shop.test", ""),
    ],
)
def test_an_address_is_read_as_people_write_it(text: str, address: str, name: str) -> None:
    assert parse_address(text, field="to") == Address(address=address, name=name.strip())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ada",
        "ada@",
        "@example.org",
        "ada@example",
        "ada@localhost",
        "ada@example..org",
        "ada lovelace@example.org",
        "ada@[127.0.0.1]",
        '"ada b"@example.org',
        "ada@example.org, eve@example.org",
        "ada@example.org, Eve <eve@example.org>",
        "Ada <ada@example.org> Eve <eve@example.org>",
        "Lovelace, Ada <ada@example.org>",
        "Ada <<ada@example.org>>",
        "a" * 65 + "@example.org",
        "a@" + "b" * 250 + ".org",
        "Ada\r\nBcc: eve@example.org <ada@example.org>",
        "ada@example.org\r\nBcc: eve@example.org",
        '"Ada\x00" <ada@example.org>',
        "Ada\u2028 <ada@example.org>",
        "n" * (NAME_LENGTH_MAX + 1) + " <ada@example.org>",
        "x" * 100_000,
    ],
)
def test_a_bad_address_is_refused_and_its_position_named(text: str) -> None:
    """One text is one address: a second one in it would get no mail, or an unwanted one."""
    with pytest.raises(InvalidInput) as refused:
        parse_addresses(["eve@example.org", text], field="to")

    assert refused.value.field == "to[1]"
    assert refused.value.reason.isprintable()


@given(st.text(max_size=60), st.text(max_size=60))
def test_a_text_becomes_an_address_or_is_refused(name: str, address: str) -> None:
    """Nothing that is accepted can end a header or a command of SMTP."""
    for text in (name, address, f"{name}<{address}>", f"{name}@{address}.org"):
        try:
            accepted = parse_address(text, field="to")
        except InvalidInput:
            continue
        assert accepted.address.isprintable()
        assert not set(accepted.address) & set(' <>()[]:;\\,"')
        assert domain_of(accepted.address).isascii()
        assert not set(accepted.name) & set("\r\n\x00")


@given(st.text(st.characters(exclude_categories=["C", "Zl", "Zp"]), max_size=NAME_LENGTH_MAX))
def test_a_quoted_name_is_read_back(name: str) -> None:
    quoted = name.replace("\\", "\\\\").replace('"', '\\"')

    assert parse_address(f'"{quoted}" <ada@example.org>', field="to").name == name


def test_every_error_of_the_library_is_translated() -> None:
    errors = [each for each in vars(exceptions).values() if isinstance(each, type)]

    assert len(errors) >= 3
    assert all(issubclass(each, exceptions.EmailNotValidError) for each in errors)


def test_the_domain_is_that_of_limits() -> None:
    assert domain_of(make_address("Ada@Münster.DE", field="to").address) == "xn--mnster-3ya.de"


@pytest.mark.parametrize(
    ("address", "is_needed"),
    [("ada@example.org", False), ("info@münchen.de", False), ("jürgen@example.org", True)],
)
def test_only_a_local_part_beyond_ascii_needs_smtputf8(address: str, is_needed: bool) -> None:
    assert needs_smtputf8(make_address(address, field="to").address) is is_needed


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("Ada@example.org", "ada@EXAMPLE.org", True),
        ("info@münchen.de", "INFO@XN--MNCHEN-3YA.DE", True),
        ("JÜRGEN@example.org", "ju\u0308rgen@example.org", True),
        ("ada+news@example.org", "ada@example.org", False),
        ("a.da@example.org", "ada@example.org", False),
    ],
)
def test_suppression_ignores_case_and_nothing_else(one: str, other: str, is_same: bool) -> None:
    keys = {suppression_key(make_address(each, field="to").address) for each in (one, other)}

    assert (len(keys) == 1) is is_same
