"""The audit over REST."""

import msgspec

from penstock.api import wire
from penstock.contract.paging import read_id, take_page
from penstock.kernel import inspect
from penstock.web.call import WebCall


async def list_page(call: WebCall[wire.AuditQuery, None]) -> wire.AuditPage:
    """Show a page of changes."""
    query = call.parameters
    async with call.connection() as db:
        found = await inspect.list_audit(
            db, subject=query.subject, before=read_id(query.after), limit=query.limit + 1
        )
    lines, following = take_page(found, query.limit, lambda line: line.audit_id)
    return wire.AuditPage(items=[_shown(line) for line in lines], next=following)


def _shown(line: inspect.AuditView) -> wire.AuditLine:
    return wire.AuditLine(
        audit_id=line.audit_id,
        audited_at=line.audited_at,
        who=line.who,
        action=line.action,
        subject=line.subject,
        before=None if line.before is None else msgspec.Raw(line.before),
        after=None if line.after is None else msgspec.Raw(line.after),
    )
