"""Open a session with aiosmtplib: connect, banner, EHLO, STARTTLS, EHLO, AUTH."""

import ssl
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, cast

import aiosmtplib

from penstock.integrations.smtp.errors import SendFailed, translated, within
from penstock.integrations.smtp.relay import ClientLimits, RelayAddress
from penstock.integrations.smtp.session import Features, Session

if TYPE_CHECKING:
    from asyncio import Transport


async def open_session(
    relay: RelayAddress,
    *,
    ehlo_name: str,
    tls: ssl.SSLContext | None,
    limits: ClientLimits,
    until: float,
    on_closed: Callable[[Session], None],
) -> Session:
    """Return a session that is ready for a message; raises SendFailed.

    `tls` replaces the system's certificates.
    """
    smtp = aiosmtplib.SMTP(
        hostname=relay.host,
        port=relay.port,
        local_hostname=ehlo_name,
        use_tls=relay.tls == "tls",
        start_tls=False,
        tls_context=_tls_context(relay, tls),
        timeout=limits.command.total_seconds(),
    )
    try:
        async with within(until, "connect"), translated("connect"):
            await smtp.connect(timeout=limits.connect.total_seconds())
        await _greet(smtp, until=until)
        if relay.tls in ("starttls", "opportunistic"):
            await _encrypt(smtp, is_required=relay.tls == "starttls", until=until)
        if relay.username is not None:
            await _authenticate(smtp, relay.username, relay.password or "", until=until)
        return _hand_over(smtp, on_closed)
    except BaseException:
        # aiosmtplib leaves the connection open if its caller is cancelled.
        smtp.close()
        raise


def _tls_context(relay: RelayAddress, tls: ssl.SSLContext | None) -> ssl.SSLContext | None:
    if relay.tls == "none":
        return None
    if relay.tls == "opportunistic":
        return _unverified_tls()
    return tls or _system_tls()


@cache  # Reading the system's certificates takes 20 ms.
def _system_tls() -> ssl.SSLContext:
    return ssl.create_default_context()


@cache
def _unverified_tls() -> ssl.SSLContext:
    """Return a context for relays without credentials: without TLS they would get clear text."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


async def _greet(smtp: aiosmtplib.SMTP, *, until: float) -> None:
    async with within(until, "ehlo"), translated("ehlo"):
        try:
            await smtp.ehlo()
        except aiosmtplib.SMTPHeloError as refused:
            if refused.code // 100 != 5:
                raise
            await smtp.helo()  # A server from before 1995; it has no extensions.


async def _encrypt(smtp: aiosmtplib.SMTP, *, is_required: bool, until: float) -> None:
    if not smtp.supports_extension("starttls"):
        if is_required:
            raise SendFailed("starttls", "not_offered", "the relay does not offer STARTTLS")
        return
    async with within(until, "starttls"), translated("starttls"):
        await smtp.starttls()
    await _greet(smtp, until=until)


async def _authenticate(
    smtp: aiosmtplib.SMTP, username: str, password: str, *, until: float
) -> None:
    async with within(until, "auth"), translated("auth"):
        await smtp.login(username, password)


def _hand_over(smtp: aiosmtplib.SMTP, on_closed: Callable[[Session], None]) -> Session:
    if smtp.transport is None or smtp.transport.is_closing():
        raise SendFailed("ehlo", "closed", "the connection was lost")
    # uvloop's transports are not subclasses.
    return Session(cast("Transport", smtp.transport), _features(smtp), on_closed=on_closed)


def _features(smtp: aiosmtplib.SMTP) -> Features:
    size = smtp.esmtp_extensions.get("size")
    return Features(
        is_pipelining=smtp.supports_extension("pipelining"),
        has_size=size is not None,
        # "SIZE" alone, and SIZE 0, declare no limit.
        size_max=int(size) if size and size.isdecimal() and int(size) > 0 else None,
        has_smtputf8=smtp.supports_extension("smtputf8"),
        has_8bitmime=smtp.supports_extension("8bitmime"),
    )
