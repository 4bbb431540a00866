"""What mail declares to the app. It imports no package of the extra `mail`: see runtime.py."""

from penstock.contract import Domain, Finding, Hint, OwnedLane, Resources
from penstock.domains.mail.errors import (
    UnknownMail,
    UnknownRelay,
    UnknownSuppression,
    UnknownTemplate,
)
from penstock.domains.mail.lanes import BULK_LANE, GUARDS, LANE, POLICY
from penstock.domains.mail.metrics import METRICS
from penstock.domains.mail.relay import list_relays
from penstock.domains.mail.relay_state import list_failing_relays
from penstock.domains.mail.settings import MailSettings


async def check_relays(resources: Resources) -> Finding:
    """Warn if mails go nowhere, if the password of a relay cannot be opened, or if one fails."""
    async with resources.pool.acquire() as db:
        relays = await list_relays(db, vault=resources.vault)
        failing = await list_failing_relays(db)
    faults = [each.name for each in relays if each.fault is not None]
    if faults:
        detail = f"the password cannot be opened with PENSTOCK_SECRET_KEY: {', '.join(faults)}"
        return Finding("warn", "mail relays", detail)
    if failing:
        listed = [
            f"{each.relay} fails since {each.changed_at:%Y-%m-%d %H:%M:%S}: {each.last_error}"
            for each in failing
        ]
        return Finding("warn", "mail relays", "; ".join(listed))
    usable = [each.name for each in relays if each.is_enabled]
    if resources.section(MailSettings).smtp_url is not None:
        usable.append("PENSTOCK_SMTP_URL")
    if not usable:
        return Finding("warn", "mail relays", "none: mails are captured and not sent")
    return Finding("ok", "mail relays", ", ".join(usable))


async def check_redirect(resources: Resources) -> Finding:
    """Warn if all mail goes to one address."""
    address = resources.section(MailSettings).mail_redirect_to
    if address is not None:
        return Finding("warn", "mail redirect", f"all mail goes to {address}")
    return Finding("ok", "mail redirect", "mails go to their recipients")


# Without what sends mails: `compose.mail` adds the factory and the commands.
MAIL = Domain(
    name="mail",
    migration_packages=("penstock.domains.mail",),
    lanes=tuple(OwnedLane(name=name, policy=POLICY, guards=GUARDS) for name in (LANE, BULK_LANE)),
    settings=(MailSettings,),
    errors=(UnknownMail, UnknownRelay, UnknownSuppression, UnknownTemplate),
    metrics=METRICS,
    checks=(check_relays, check_redirect),
    hint=Hint(
        what="a mail, which is kept here until you set PENSTOCK_SMTP_URL",
        path="/mails",
        body='{"from": "shop@example.com", "to": ["ada@example.com"], "subject": "Order 1", '
        '"text": "It is on its way.", "key": "order-1"}',
    ),
)
