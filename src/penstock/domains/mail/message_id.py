"""The Message-ID of a mail: derived from its id, so that every attempt has the same one. Pure."""

import re

SALT_PATTERN = re.compile(r"[0-9a-f]{8}")  # Drawn once per database: two of them share mail ids.

# No mail id has more digits than a bigint. The domain is not compared: a report may have changed
# its case, and the salt already identifies the database.
_MESSAGE_ID = re.compile(r"<?(?P<id>[0-9]{1,19})\.(?P<salt>[0-9a-f]{8})@[^\s<>@]{1,255}>?")
_BIGINT_MAX = 2**63 - 1


def make_message_id(mail_id: int, *, salt: str, domain: str) -> str:
    """Return the Message-ID with its angle brackets; `domain` is that of the sender."""
    assert SALT_PATTERN.fullmatch(salt), "mails of another salt would not be found again"
    return f"<{mail_id}.{salt}@{domain}>"


def find_mail_id(message_id: str, *, salt: str) -> int | None:
    """Return the mail with this Message-ID, or None if this database did not make it."""
    found = _MESSAGE_ID.fullmatch(message_id.strip())
    if found is None or found["salt"] != salt:
        return None
    mail_id = int(found["id"])
    return mail_id if mail_id <= _BIGINT_MAX else None
