"""Signatures that dkimpy verifies with the public half of the key, and changes that it finds."""

from collections.abc import Callable

import dkim
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.errors import InvalidInput
from penstock.domains.mail.dkim import DkimKey, read_key, sign
from penstock.domains.mail.mail import Address
from tests.domains.mail.scene import INVOICE, a_line, a_text, content_of, read

PrivateKey = rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey | ec.EllipticCurvePrivateKey


def pem_of(key: PrivateKey, *, password: bytes | None = None) -> bytes:
    encryption = NoEncryption() if password is None else BestAvailableEncryption(password)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)


RSA_PEM = pem_of(rsa.generate_private_key(65537, 2048))
ED25519_PEM = pem_of(ed25519.Ed25519PrivateKey.generate())
MESSAGE = content_of(
    subject="Grüße an alle, die das lesen",
    text="Zwei Zeilen  \n\nmit Lücken\n\n\n",
    sender=Address(address="shop@example.org", name="Jürgen"),
    attachments=(INVOICE,),
)

each_key = pytest.mark.parametrize("pem", [RSA_PEM, ED25519_PEM], ids=["rsa", "ed25519"])


def a_key(pem: bytes) -> DkimKey:
    return read_key(pem, domain="example.org", selector="penstock")


def is_verified(message: bytes, key: DkimKey) -> bool:
    def look_up(name: bytes, timeout: int = 5) -> bytes:  # noqa: ARG001 - dkimpy passes it
        assert name == f"{key.record_name}.".encode()
        return key.record.encode()

    return bool(dkim.verify(message, dnsfunc=look_up))


@each_key
def test_a_signature_is_verified_with_the_published_key(pem: bytes) -> None:
    key = a_key(pem)
    signed = sign(MESSAGE, key)

    assert signed.endswith(MESSAGE)
    assert signed.startswith(b"DKIM-Signature: v=1;")
    assert is_verified(signed, key)


@each_key
@pytest.mark.parametrize(
    "change",
    [
        lambda signed: signed.replace(b"Zwei", b"Drei"),
        lambda signed: signed.replace(b"To: Ada", b"To: Eve"),
        lambda signed: b"From: eve@example.org\r\n" + signed,
        lambda signed: b"Subject: other\r\n" + signed,
        lambda signed: signed.replace(b"12:00:00", b"13:00:00"),
    ],
    ids=["body", "header", "second From", "second Subject", "date"],
)
def test_a_change_makes_the_signature_invalid(pem: bytes, change: Callable[[bytes], bytes]) -> None:
    key = a_key(pem)
    signed = sign(MESSAGE, key)
    changed = change(signed)

    assert changed != signed
    assert not is_verified(changed, key)


@each_key
def test_a_relay_may_add_trace_headers_and_fold_anew(pem: bytes) -> None:
    key = a_key(pem)
    signed = sign(MESSAGE, key).replace(b"To: Ada <", b"To:  Ada\r\n <")

    assert is_verified(b"Received: from x by y\r\n" + signed, key)


@each_key
def test_the_unsubscribe_headers_are_signed(pem: bytes) -> None:
    """RFC 8058: without it mail programs show no button."""
    signed = sign(content_of(unsubscribe_url="https://example.org/u"), a_key(pem))
    covered = "".join(read(signed)["DKIM-Signature"].split()).partition("h=")[2].partition(";")[0]

    assert {"list-unsubscribe", "list-unsubscribe-post", "from"} <= set(covered.split(":"))


@each_key
def test_a_key_is_not_shown(pem: bytes) -> None:
    assert "private" not in repr(a_key(pem))


@pytest.mark.parametrize(
    ("pem", "reason"),
    [
        (b"", "not a private key"),
        (b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "not a private key"),
        (pem_of(ed25519.Ed25519PrivateKey.generate(), password=b"x"), "not a private key"),
        (pem_of(ec.generate_private_key(ec.SECP256R1())), "RSA or ed25519"),
    ],
    ids=["empty", "garbage", "password", "another kind"],
)
def test_a_key_that_cannot_sign_is_refused(pem: bytes, reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason) as refused:
        a_key(pem)

    assert refused.value.field == "key"


@pytest.mark.parametrize(
    ("domain", "selector", "field"),
    [
        ("example", "s", "domain"),
        ("Example.org", "s", "domain"),
        ("example.org; d=evil.org", "s", "domain"),
        ("example.org", "", "selector"),
        ("example.org", "s; x=1", "selector"),
        ("example.org", "s\r\n", "selector"),
    ],
)
def test_a_name_that_is_not_for_the_dns_is_refused(domain: str, selector: str, field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        read_key(ED25519_PEM, domain=domain, selector=selector)

    assert refused.value.field == field


@each_key
@given(text=a_text, html=st.none() | a_text, subject=a_line, name=a_line, value=a_line)
def test_the_signature_of_any_mail_is_verified(
    *, pem: bytes, text: str, html: str | None, subject: str, name: str, value: str
) -> None:
    """A mail with a bad signature is worse than one without: receivers take it for a forgery."""
    key = a_key(pem)
    content = content_of(
        text=text,
        html=html,
        subject=subject,
        sender=Address(address="shop@example.org", name=name),
        headers={"X-Note": value, "References": "<a@example.org>\t <b@example.org>"},
        attachments=(INVOICE,) if len(text) % 2 else (),
    )

    assert is_verified(sign(content, key), key)


@each_key
@pytest.mark.parametrize(
    "body", [b"", b"\r\n\r\n", b" \t\r\n", b"a\t b  \r\n \r\n\r\n", b"a \r\n b", b"\r\na"]
)
def test_blanks_in_the_body_are_canonicalised_as_verifiers_do(pem: bytes, body: bytes) -> None:
    key = a_key(pem)
    message = b"From: shop@example.org\r\nSubject:  a \t b \r\n\tc\r\n\r\n" + body

    assert is_verified(sign(message, key), key)


@each_key
def test_of_headers_with_the_same_name_each_is_signed(pem: bytes) -> None:
    key = a_key(pem)
    signed = sign(b"Cc: a@example.org\r\nCc: b@example.org\r\n" + MESSAGE, key)

    assert is_verified(signed, key)
    assert not is_verified(signed.replace(b"Cc: a@", b"Cc: c@"), key)


def test_the_lines_of_a_signature_are_short() -> None:
    signed = sign(MESSAGE, a_key(RSA_PEM)).removesuffix(MESSAGE)

    assert max(map(len, signed.split(b"\r\n"))) <= 78


@pytest.mark.parametrize("message", [b"no header\r\n\r\n", b"", b"To: a@example.org\r\n\r\nHi"])
def test_what_is_not_a_message_cannot_be_signed(message: bytes) -> None:
    with pytest.raises(InvalidInput, match="cannot be signed"):
        sign(message, a_key(ED25519_PEM))
