"""SMTP client for relays that an operator configures: pooled, pipelined, one reply per recipient.

aiosmtplib opens connections (TLS, EHLO, AUTH); transactions are a protocol of this package. It
imports no domain, and logs nothing: addresses, subjects, bodies and credentials stay here.
"""

from penstock.integrations.smtp.client import Client, Sent, Stats
from penstock.integrations.smtp.errors import FailureKind, SendFailed
from penstock.integrations.smtp.relay import ClientLimits, RelayAddress, TlsPolicy
from penstock.integrations.smtp.reply import SmtpPhase, SmtpReply

__all__ = [
    "Client",
    "ClientLimits",
    "FailureKind",
    "RelayAddress",
    "SendFailed",
    "Sent",
    "SmtpPhase",
    "SmtpReply",
    "Stats",
    "TlsPolicy",
]
