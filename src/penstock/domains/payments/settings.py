"""The section of the environment that belongs to payments."""

from pydantic_settings import BaseSettings

from penstock.base.settings import SECTION


class PaymentSettings(BaseSettings):
    """Notifications about payments."""

    model_config = SECTION

    payments_mail_from: str = "payments@localhost.localdomain"
    """Sender of the mails about payments, for those that ask for one."""
