"""Addresses as people write them, checked with email-validator and brought into one form. No DNS.

This is the only module that calls email-validator.
"""

import re
import unicodedata
from collections.abc import Iterable

from email_validator import EmailNotValidError, validate_email

from penstock.base.errors import InvalidInput
from penstock.domains.mail.mail import Address
from penstock.domains.mail.one_line import check_one_line, replace_forbidden

NAME_LENGTH_MAX = 200  # Encoded and with an address, still within one line of 998 bytes.
TEXT_LENGTH_MAX = 1_000  # A name, an address of at most 254, and room for quotes and escapes.

_NAMED = re.compile(r"(?P<name>[^<>]*|\".*\")[ \t]*<(?P<address>[^<>]*)>")
_QUOTED = re.compile(r'"(?P<inner>(?:[^"\\]|\\.)*)"')
# Without quotes these separate addresses or begin comments, so the name would be ambiguous.
_SPECIAL = re.compile(r'[()<>\[\]:;@\\,"]')


def parse_addresses(texts: Iterable[str], *, field: str) -> tuple[Address, ...]:
    """Parse one address per text; raises InvalidInput with the position, such as `to[1]`."""
    return tuple(
        parse_address(text, field=f"{field}[{position}]") for position, text in enumerate(texts)
    )


def parse_address(text: str, *, field: str) -> Address:
    """Parse `ada@example.org`, `Ada <ada@example.org>` or `"Lovelace, Ada" <ada@example.org>`.

    Raises InvalidInput.
    """
    if len(text) > TEXT_LENGTH_MAX:
        raise InvalidInput(field, f"is over {TEXT_LENGTH_MAX} characters")
    named = _NAMED.fullmatch(text.strip(" \t"))
    if named is None:
        return make_address(text.strip(" \t"), field=field)
    name = _read_name(named["name"].strip(" \t"), field)
    return make_address(named["address"].strip(" \t"), name=name, field=field)


def make_address(address: str, *, name: str = "", field: str) -> Address:
    """Check an address that is already separate from its name; raises InvalidInput.

    The local part keeps its case and is normalised to NFC. A domain with other letters than ASCII
    becomes its ASCII form, which every relay accepts.
    """
    check_name(name, field=field)
    try:
        checked = validate_email(
            address,
            check_deliverability=False,
            strict=True,  # Relays refuse a local part of over 64 bytes.
            test_environment=True,  # Permits .test, which never belongs to a person.
        )
    except EmailNotValidError as refused:
        raise InvalidInput(field, _reason(refused)) from refused
    return Address(address=f"{checked.local_part}@{checked.ascii_domain.lower()}", name=name)


def check_name(name: str, *, field: str) -> None:
    """Raise InvalidInput for a display name that no header can carry."""
    if len(name) > NAME_LENGTH_MAX:
        raise InvalidInput(field, f"has a name of over {NAME_LENGTH_MAX} characters")
    check_one_line(name, field=field)


def domain_of(address: str) -> str:
    """Return the domain of an address of this module, in ASCII and lower case."""
    return address.rpartition("@")[2]


def needs_smtputf8(address: str) -> bool:
    """Return whether a relay must offer SMTPUTF8 to take this address of this module."""
    return not address.isascii()


def suppression_key(address: str) -> str:
    """Return the form in which an address of this module is suppressed.

    The case of the local part is ignored too: by RFC 5321 it may matter, but providers ignore it,
    and a person who has unsubscribed must not get mail because of a capital letter. Dots and
    `+tags` are kept, because what they mean differs between providers.
    """
    local, _, domain = address.rpartition("@")
    return unicodedata.normalize("NFC", local.casefold()) + "@" + domain.lower()


def _read_name(text: str, field: str) -> str:
    quoted = _QUOTED.fullmatch(text)
    if quoted is not None:
        return re.sub(r"\\(.)", r"\1", quoted["inner"])
    special = _SPECIAL.search(text)
    if special is not None:
        raise InvalidInput(field, f'has {special[0]!r} in a name; write the name in "quotes"')
    return text


def _reason(refused: EmailNotValidError) -> str:
    # The library's sentences quote what was sent.
    return replace_forbidden(f"is not a valid address: {refused}")
