"""The e-mail backend. It needs nothing but Django's own connection, and no worker in its process.

This is the only module that imports Django.
"""

from collections.abc import Sequence

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.mail.backends.base import BaseEmailBackend
from django.core.mail.message import BadHeaderError, EmailMessage
from django.db import DEFAULT_DB_ALIAS, Error, connections, transaction

from penstock.base.errors import InvalidInput, PenstockError
from penstock.django.convert import to_new_mail
from penstock.domains.mail.enqueue import accept_blocking

ALIAS_SETTING = "PENSTOCK_DATABASE_ALIAS"


class InvalidMessage(BadHeaderError):
    """A message that no relay should be given; nothing is queued.

    It is what Django's own backends raise for a header with a line break, so that a view that
    catches `BadHeaderError` or `ValueError` still does. `field` names the part, such as `to[1]`.
    """

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field
        self.reason = reason


class EmailBackend(BaseEmailBackend):
    """Enqueues messages in the current transaction of the database PENSTOCK_DATABASE_ALIAS.

    In `transaction.atomic` a rollback removes the mail; without one, the mail is committed when
    the call returns. The messages of one call are queued all or none, except with `fail_silently`:
    then those that cannot be queued are left out, and the transaction can go on.
    """

    def send_messages(self, email_messages: Sequence[EmailMessage]) -> int:
        """Return how many messages are queued; raises InvalidMessage, KeyConflict or UnknownLane.

        A message without a recipient is not queued, as in Django's own backends.
        """
        given = {no: each for no, each in enumerate(email_messages) if each.recipients()}
        if not given:
            return 0
        alias = _choose_alias()
        if self.fail_silently:
            return sum(_is_accepted(each, alias) for each in given.values())
        with transaction.atomic(using=alias):
            for position, message in given.items():
                _accept(message, alias, f"messages[{position}]." if len(given) > 1 else "")
        return len(given)


def _choose_alias() -> str:
    alias = getattr(settings, ALIAS_SETTING, DEFAULT_DB_ALIAS)
    if connections[alias].vendor != "postgresql":
        raise ImproperlyConfigured(f"{ALIAS_SETTING}: the database {alias!r} is not PostgreSQL")
    return alias


def _is_accepted(message: EmailMessage, alias: str) -> bool:
    try:
        with transaction.atomic(using=alias):  # A savepoint: the caller's transaction can go on.
            _accept(message, alias)
    except (InvalidMessage, PenstockError, Error):
        return False
    return True


def _accept(message: EmailMessage, alias: str, prefix: str = "") -> None:
    try:
        accept_blocking(to_new_mail(message), connection=connections[alias])
    except InvalidInput as refused:
        raise InvalidMessage(prefix + refused.field, refused.reason) from refused
