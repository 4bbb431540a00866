"""Connect mail to the SMTP client, the gate of the process, and webhooks.

The extra `mail` is imported when the domain is built, so that other commands start as fast.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from typing import TypeAlias

from penstock.base.settings import Settings
from penstock.compose.events import choose_announce, runs
from penstock.contract import Domain, Resources, Runtime
from penstock.domains.mail.commands import mail
from penstock.domains.mail.domain import MAIL
from penstock.domains.mail.relay import SmtpRelay
from penstock.domains.mail.reply import RelayReply
from penstock.domains.mail.settings import MailSettings
from penstock.domains.mail.transmit import MailTransmission, Replied, TransmissionFailed, Transmit

Closes: TypeAlias = list[Callable[[], Awaitable[None]]]

EXTRA = ("aiosmtplib", "css_inline", "email_validator", "jinja2")


def is_installed() -> bool:
    """Return whether the packages of the extra `mail` are there."""
    return all(find_spec(each) is not None for each in EXTRA)


def is_used(chosen: Settings) -> bool:
    """Return whether this process runs the domain."""
    return is_installed() and runs(chosen, "mail")


def build(resources: Resources) -> Runtime:
    """Build the domain as the environment says."""
    return build_with(resources, resources.section(MailSettings))


def build_with(resources: Resources, chosen: MailSettings) -> Runtime:
    """Build the domain with settings of mail, on the integrations that the environment names."""
    from penstock.domains.mail.runtime import build as build_domain  # noqa: PLC0415  An extra.

    closes: Closes = []
    runtime = build_domain(
        resources,
        chosen,
        transmit=_make_transmit(closes),
        gate=resources.gate,
        announce=choose_announce(resources.settings),
    )
    return runtime.built_on(closes)


def _make_transmit(closes: Closes) -> Transmit:
    """Return what sends by SMTP; the client opens a connection when there is a mail."""
    from penstock.integrations.smtp import (  # noqa: PLC0415  An extra.
        Client,
        RelayAddress,
        SendFailed,
        SmtpReply,
    )

    client = Client()
    closes.append(client.close)

    @cache
    def address_of(relay: SmtpRelay) -> RelayAddress:
        return RelayAddress(
            name=relay.name,
            host=relay.host,
            port=relay.port,
            tls=relay.tls,
            username=relay.username,
            password=relay.password,
            connections_max=relay.connections_max,
            messages_per_connection_max=relay.messages_per_connection_max,
            idle_time=relay.idle_time,
        )

    def to_domain_reply(reply: SmtpReply) -> RelayReply:
        return RelayReply(
            phase=reply.phase, code=reply.code, enhanced=reply.enhanced, text=reply.text
        )

    async def transmit(
        relay: SmtpRelay, transmission: MailTransmission
    ) -> Replied | TransmissionFailed:
        try:
            sent = await client.send(
                address_of(relay),
                sender=transmission.sender,
                recipients=transmission.recipients,
                message=transmission.message,
                smtputf8=transmission.smtputf8,
                timeout=transmission.timeout,
            )
        except SendFailed as failed:
            return TransmissionFailed(
                phase=failed.phase,
                kind=failed.kind,
                reason=failed.reason,
                reply=None if failed.reply is None else to_domain_reply(failed.reply),
                is_unknown=failed.is_unknown,
                replies=tuple(
                    None if each is None else to_domain_reply(each) for each in failed.replies
                ),
            )
        return Replied(tuple(to_domain_reply(each) for each in sent.replies))

    return transmit


DOMAIN: Domain = replace(MAIL, build=build, commands=(mail,))
