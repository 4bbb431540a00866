"""Whatever aiosmtplib or the system raises becomes a SendFailed with a kind of its own."""

import socket
import ssl
from collections.abc import Iterator

import aiosmtplib
import pytest

from penstock.integrations.smtp.errors import FailureKind, translate

# The class alone decides; those that carry a reply are `refused`.
KINDS: dict[type[aiosmtplib.SMTPException], FailureKind] = {
    aiosmtplib.SMTPException: "not_offered",
    aiosmtplib.SMTPServerDisconnected: "closed",
    aiosmtplib.SMTPConnectError: "connect",
    aiosmtplib.SMTPTimeoutError: "timeout",
    aiosmtplib.SMTPConnectTimeoutError: "timeout",
    aiosmtplib.SMTPReadTimeoutError: "timeout",
    aiosmtplib.SMTPNotSupported: "not_offered",
    aiosmtplib.SMTPResponseException: "refused",
    aiosmtplib.SMTPConnectResponseError: "refused",
    aiosmtplib.SMTPHeloError: "refused",
    aiosmtplib.SMTPDataError: "refused",
    aiosmtplib.SMTPAuthenticationError: "refused",
    aiosmtplib.SMTPSenderRefused: "refused",
    aiosmtplib.SMTPRecipientRefused: "refused",
    aiosmtplib.SMTPRecipientsRefused: "refused",
}


def classes(ancestor: type[aiosmtplib.SMTPException]) -> Iterator[type[aiosmtplib.SMTPException]]:
    yield ancestor
    for child in ancestor.__subclasses__():
        yield from classes(child)


def example(kind: type[aiosmtplib.SMTPException]) -> aiosmtplib.SMTPException:
    if issubclass(kind, aiosmtplib.SMTPSenderRefused | aiosmtplib.SMTPRecipientRefused):
        return kind(550, "5.1.1 x@example.com", "x@example.com")
    if issubclass(kind, aiosmtplib.SMTPResponseException):
        return kind(550, "5.1.1 x@example.com")
    if issubclass(kind, aiosmtplib.SMTPRecipientsRefused):
        return kind([])
    return kind("about x@example.com")


def test_the_list_has_every_class_of_the_vendor() -> None:
    assert set(classes(aiosmtplib.SMTPException)) == set(KINDS)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_each_class_of_the_vendor_has_its_kind(kind: type[aiosmtplib.SMTPException]) -> None:
    failed = translate(example(kind), "ehlo")

    assert failed.kind == KINDS[kind]
    assert not failed.is_unknown
    assert "example.com" not in str(failed)
    if issubclass(kind, aiosmtplib.SMTPResponseException):
        assert failed.reply is not None
        assert (failed.reply.code, failed.reply.enhanced) == (550, "5.1.1")


@pytest.mark.parametrize(
    ("raised", "kind"),
    [
        (TimeoutError(), "timeout"),
        (ConnectionResetError(), "closed"),
        (ConnectionRefusedError(111, "refused"), "connect"),
        (socket.gaierror(-2, "unknown"), "bad_name"),
        (ssl.SSLError("handshake"), "tls"),
        (ssl.SSLCertVerificationError("certificate"), "tls"),
        (UnicodeError("name"), "malformed"),
        (aiosmtplib.SMTPResponseException(-1, "garbage"), "malformed"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else value,
)
def test_what_the_system_raises_has_its_kind(raised: Exception, kind: FailureKind) -> None:
    assert translate(raised, "connect").kind == kind
