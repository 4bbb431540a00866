"""Groups of recipients' domains that one provider receives for; a limit may be of a group.

An operator lists the domains. Rows are read again for every claimed batch.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.base.errors import InvalidInput
from penstock.domains.mail.relay import NAME
from penstock.kernel.audit import audit
from penstock.postgres.pool import Connection, Queries
from penstock.postgres.statement import statement

LIST_DOMAIN_GROUPS = statement(__package__, "list_domain_groups.sql")
FIND_GROUPS = statement(__package__, "find_groups.sql")
PUT_DOMAIN_GROUP = statement(__package__, "put_domain_group.sql")

DOMAINS_MAX = 10_000  # Of one group: all groups are read for each batch.

_DOMAIN = re.compile(
    r"(?=.{1,253}$)[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainGroup:
    """Domains, in ASCII and lower case, whose mails one provider counts together."""

    name: str
    domains: Sequence[str]


async def list_domain_groups(db: Queries) -> list[DomainGroup]:
    """Return all groups by name."""
    return [DomainGroup(**dict(row.items())) for row in await db.fetch(LIST_DOMAIN_GROUPS)]


async def put_domain_group(db: Connection, group: DomainGroup, *, who: str) -> DomainGroup:
    """Create or replace a group; one without domains is removed.

    Raises InvalidInput, also for a domain that is in another group.
    """
    checked = _check(group)
    async with db.transaction():
        taken = await db.fetch(PUT_DOMAIN_GROUP, checked.name, checked.domains)
        if len(taken) < len(checked.domains):
            elsewhere = await db.fetch(FIND_GROUPS, checked.name, checked.domains)
            listed = ", ".join(f"{row['domain']} in {row['group_name']}" for row in elsewhere)
            raise InvalidInput("domains", f"has domains of other groups: {listed}")
        after = {"domain_count": len(checked.domains)}
        await audit(db, who, "mail_domain_group.changed", subject=checked.name, after=after)
    return checked


def _check(group: DomainGroup) -> DomainGroup:
    if not NAME.fullmatch(group.name):
        raise InvalidInput("name", "must be 1 to 63 of a-z, 0-9, dot, dash and underscore")
    if len(group.domains) > DOMAINS_MAX:
        raise InvalidInput("domains", f"has over {DOMAINS_MAX} domains")
    return DomainGroup(
        name=group.name,
        domains=sorted(
            {_normal(each, f"domains[{place}]") for place, each in enumerate(group.domains)}
        ),
    )


def _normal(domain: str, field: str) -> str:
    """Return the domain as the addresses of mails have it."""
    try:
        normal = domain.strip().lower().encode("ascii").decode()
    except UnicodeEncodeError:
        raise InvalidInput(field, "must be in ASCII, as xn--mnchen-3ya.de") from None
    if not _DOMAIN.fullmatch(normal):
        raise InvalidInput(field, "is not a domain such as example.org")
    return normal
