"""The section of the environment that belongs to mail."""

from datetime import timedelta
from typing import Literal, Self

from pydantic import Field, FilePath, SecretStr, model_validator
from pydantic_settings import BaseSettings

from penstock.base.errors import BadSetting
from penstock.base.settings import SECTION, Seconds


class MailSettings(BaseSettings):
    """The default relay, and what happens to a mail on its way out."""

    model_config = SECTION

    smtp_url: SecretStr | None = None  # Secret, because it may hold a password.
    """Default relay, as `smtp://user:password@host:587`: with `smtps://` TLS from the start, with
    `smtp://` STARTTLS if there is an account, else only if the relay offers it. Absent, and without
    relays in the database: mails are kept and shown, and marked as captured."""
    mail_on_unknown: Literal["retry", "hold"] = "retry"
    """What follows if the connection is lost after the end of a message, so that nobody knows
    whether the relay has it: `retry` sends it again with the same Message-ID, `hold` leaves the
    mail to a person."""
    mail_timeout: Seconds = Field(
        default=timedelta(seconds=60),
        ge=timedelta(seconds=1),
        le=timedelta(minutes=10),
        validation_alias="PENSTOCK_MAIL_TIMEOUT_SECONDS",
    )
    """How long one message may take, the wait for a connection included."""
    mail_redirect_to: str | None = None
    """An address that gets every mail in place of its recipients, for staging."""
    public_url: str | None = None
    """Address under which people reach this API, as `https://mail.example.org`; links for
    unsubscribing need it."""
    dkim_domain: str | None = None
    """Domain that signs mails with DKIM: those whose sender is in it or below it."""
    dkim_selector: str | None = None
    """Name of the key in the DNS of the domain."""
    dkim_key: FilePath | None = None
    """File with the private key (PEM), of RSA or ed25519."""

    @model_validator(mode="after")
    def _dkim_is_whole(self) -> Self:
        given = {
            "PENSTOCK_DKIM_DOMAIN": self.dkim_domain,
            "PENSTOCK_DKIM_SELECTOR": self.dkim_selector,
            "PENSTOCK_DKIM_KEY": self.dkim_key,
        }
        missing = [name for name, value in given.items() if value is None]
        if missing and len(missing) < len(given):
            raise BadSetting(missing[0], "is needed with the other settings of DKIM")
        return self
