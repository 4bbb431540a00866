"""Accept mails in the caller's transaction, on a connection of any driver, or in one of its own.

Producers may call the SQL function themselves: penstock.send_mail.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from penstock.base.errors import InvalidInput
from penstock.domains.mail.new_mail import NewMail, PreparedMail, check_source, prepare
from penstock.domains.mail.relay import DEFAULT_RELAY
from penstock.domains.mail.template import (
    Rendered,
    Template,
    TemplateRenderer,
    languages_to_try,
)
from penstock.domains.mail.unsubscribe import check_public_url
from penstock.kernel import driver
from penstock.kernel.item import Accepted, ItemId
from penstock.postgres.pool import Connection, Pool
from penstock.postgres.statement import statement

SEND_MAIL = statement(__package__, "send_mail.sql")
SEND_MAILS = statement(__package__, "send_mails.sql")
PUT_BLOB = statement(__package__, "put_blob.sql")
FIND_TEMPLATE = statement(__package__, "find_template.sql")
HAS_RELAY = statement(__package__, "has_relay.sql")

DEFAULT_LANGUAGE = "en"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mailer:
    """Sends mails from Python: `app.api(Mailer).send(...)`. Raises InvalidInput with the field.

    With `connection` the mail is part of the caller's transaction; without it, it is committed when
    the call returns. The mail is accepted then, and sent by a worker.
    """

    pool: Pool
    renderer: TemplateRenderer = field(default_factory=TemplateRenderer)
    public_url: str | None = None

    async def send(self, mail: NewMail, *, connection: object | None = None) -> Accepted:
        """Accept one mail; the same key again returns the first one."""
        if connection is not None:
            return await self._send(connection, mail)
        async with self.pool.acquire() as db, db.transaction():
            return await self._send(db, mail)

    def send_blocking(self, mail: NewMail, *, connection: object) -> Accepted:
        """Do the same on a blocking connection (psycopg 3, SQLAlchemy or Django)."""
        self._check(mail)
        rendered = None
        if mail.template is not None:
            row = driver.fetch_row_blocking(connection, FIND_TEMPLATE, _template_key(mail))
            rendered = self._render(mail, row)
        return accept_blocking(mail, rendered, connection=connection)

    async def prepare(self, mail: NewMail, *, connection: object | None = None) -> PreparedMail:
        """Check and render a mail; reads its template and relay, and writes nothing."""
        connection = connection or self.pool
        self._check(mail)
        rendered = None
        if mail.template is not None:
            row = await driver.fetch_row(connection, FIND_TEMPLATE, _template_key(mail))
            rendered = self._render(mail, row)
        if _needs_relay(mail):
            _check_relay(await driver.fetch_row(connection, HAS_RELAY, (mail.relay,)))
        return prepare(mail, rendered)

    async def _send(self, connection: object, mail: NewMail) -> Accepted:
        prepared = await self.prepare(mail, connection=connection)
        for blob in prepared.blobs:
            await driver.fetch_row(connection, PUT_BLOB, (blob,))
        arguments = (prepared.lane, prepared.document, None)
        return _accepted(await driver.fetch_row(connection, SEND_MAIL, arguments))

    def _check(self, mail: NewMail) -> None:
        check_source(mail)
        if mail.unsubscribe:
            if self.public_url is None:
                raise InvalidInput("unsubscribe", "needs PENSTOCK_PUBLIC_URL")
            check_public_url(self.public_url, field="unsubscribe")

    def _render(self, mail: NewMail, row: Any) -> tuple[Template, Rendered]:
        if row is None:
            raise InvalidInput("template", f"{mail.template!r} does not exist")
        template = Template(
            name=row[0], language=row[1], version=row[2], subject=row[3], text=row[4], html=row[5]
        )
        return template, self.renderer.render(template, mail.variables)


def accept_blocking(
    mail: NewMail, rendered: tuple[Template, Rendered] | None = None, *, connection: object
) -> Accepted:
    """Accept one mail, whose template is rendered, in the transaction of a blocking connection."""
    if _needs_relay(mail):
        _check_relay(driver.fetch_row_blocking(connection, HAS_RELAY, (mail.relay,)))
    prepared = prepare(mail, rendered)
    for blob in prepared.blobs:
        driver.fetch_row_blocking(connection, PUT_BLOB, (blob,))
    arguments = (prepared.lane, prepared.document, None)
    return _accepted(driver.fetch_row_blocking(connection, SEND_MAIL, arguments))


async def send_prepared(
    db: Connection, mails: Sequence[PreparedMail], *, at: datetime | None = None
) -> list[Accepted]:
    """Accept mails of one lane in one statement, in the transaction of `db`."""
    (lane,) = {each.lane for each in mails}
    for blob in {blob: None for each in mails for blob in each.blobs}:
        await db.fetchval(PUT_BLOB, blob)
    with driver.translated(lane):
        rows = await db.fetch(SEND_MAILS, lane, [each.document for each in mails], at)
    return [_accepted(row) for row in rows]


def _template_key(mail: NewMail) -> tuple[str | None, list[str]]:
    return mail.template, list(languages_to_try(mail.language, default=DEFAULT_LANGUAGE))


def _needs_relay(mail: NewMail) -> bool:
    return mail.relay is not None and mail.relay != DEFAULT_RELAY


def _check_relay(row: Any) -> None:
    if not row[0]:
        raise InvalidInput("relay", "does not exist")


def _accepted(row: Any) -> Accepted:
    return Accepted(id=ItemId(row[0]), is_new=row[1])
