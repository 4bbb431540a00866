"""Templates as rows: a new text is a new version, and versions are never changed."""

import re
from datetime import datetime

from msgspec import Struct

from penstock.base.errors import InvalidInput
from penstock.domains.mail.errors import UnknownTemplate
from penstock.domains.mail.template import Template, TemplateRenderer, normalise_language
from penstock.kernel.audit import audit
from penstock.postgres.pool import Connection, Queries
from penstock.postgres.statement import statement

LOCK_TEMPLATE = statement(__package__, "lock_template.sql")
ADD_TEMPLATE = statement(__package__, "add_template.sql")
LIST_TEMPLATES = statement(__package__, "list_templates.sql")

NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,62}")  # As the table's CHECK.


class TemplateView(Struct, frozen=True, kw_only=True):
    """The latest version of a template in one language, as it goes over HTTP too."""

    name: str
    language: str
    version: int
    subject: str
    text: str | None
    html: str | None
    created_at: datetime
    created_by: str


async def add_template(
    db: Connection, template: Template, *, renderer: TemplateRenderer, who: str
) -> int:
    """Store a new version and return its number; raises InvalidInput if it does not compile."""
    if not NAME.fullmatch(template.name):
        characters = "1 to 63 of a-z, 0-9, dot, dash and underscore"
        raise InvalidInput("name", f"must be {characters}, beginning with a letter or digit")
    renderer.check(template)
    language = normalise_language(template.language)
    async with db.transaction():
        await db.execute(LOCK_TEMPLATE, template.name, language)
        version: int = await db.fetchval(
            ADD_TEMPLATE,
            template.name,
            language,
            template.subject,
            template.text,
            template.html,
            who,
        )
        await audit(
            db,
            who,
            "mail_template.added",
            subject=template.name,
            after={"language": language, "version": version},
        )
    return version


async def list_templates(db: Queries, *, name: str | None = None) -> list[TemplateView]:
    """Return the latest version of each template and language; UnknownTemplate for a wrong name."""
    rows = await db.fetch(LIST_TEMPLATES, name)
    if name is not None and not rows:
        raise UnknownTemplate(name)
    return [TemplateView(**dict(row.items())) for row in rows]
