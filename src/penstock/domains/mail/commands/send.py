"""`penstock mail send`: accept a mail."""

import asyncio
import mimetypes
import sys
from collections.abc import Sequence
from pathlib import Path

import click
import msgspec

from penstock.base.errors import InvalidInput
from penstock.base.settings import section
from penstock.console.database import data_dir_option, lent_resources
from penstock.console.output import json_option, print_record
from penstock.console.values import parse_when
from penstock.domains.mail.settings import MailSettings

FILE = click.Path(path_type=Path, exists=True, dir_okay=False)


@click.command()
@click.option("--from", "sender", required=True, help="Address of the sender.")
@click.option("--to", multiple=True, help="A recipient; may be given several times.")
@click.option("--cc", multiple=True, help="A recipient of a copy.")
@click.option("--bcc", multiple=True, help="A recipient that others do not see.")
@click.option("--subject", help="Subject line.")
@click.option("--text", help="Body as plain text; - reads standard input.")
@click.option("--html", type=FILE, help="File with the body as HTML.")
@click.option("--template", help="Template in place of subject and bodies.")
@click.option("--variables", default="{}", help="Variables of the template, as JSON.")
@click.option("--language", help="Language of the template.")
@click.option("--attach", type=FILE, multiple=True, help="A file to attach.")
@click.option("--tag", multiple=True, help="A tag to find the mail by.")
@click.option("--key", help="Idempotency key.")
@click.option("--not-before", help="When to send it: an instant, or a time from now such as +2h.")
@click.option("--relay", help="Relay to use.")
@click.option("--bulk", is_flag=True, help="Send it after mails that are not bulk.")
@click.option("--override-suppression", is_flag=True, help="Send to suppressed addresses too.")
@data_dir_option
@json_option
def send(  # noqa: PLR0913  One argument per option.
    *,
    sender: str,
    to: Sequence[str],
    cc: Sequence[str],
    bcc: Sequence[str],
    subject: str | None,
    text: str | None,
    html: Path | None,
    template: str | None,
    variables: str,
    language: str | None,
    attach: Sequence[Path],
    tag: Sequence[str],
    key: str | None,
    not_before: str | None,
    relay: str | None,
    bulk: bool,
    override_suppression: bool,
    data_dir: Path | None,
    as_json: bool,
) -> None:
    """Accept a mail; a worker sends it."""
    from penstock.domains.mail.enqueue import Mailer  # noqa: PLC0415  An extra.
    from penstock.domains.mail.new_mail import NewAttachment, NewMail  # noqa: PLC0415

    new = NewMail(
        sender=sender,
        to=to,
        cc=cc,
        bcc=bcc,
        subject=subject,
        text=sys.stdin.read() if text == "-" else text,
        html=None if html is None else html.read_text(encoding="utf-8"),
        template=template,
        variables=_variables(variables),
        language=language,
        attachments=[
            NewAttachment(
                content=path.read_bytes(),
                filename=path.name,
                content_type=mimetypes.guess_type(path.name)[0] or "application/octet-stream",
            )
            for path in attach
        ],
        tags=tag,
        key=key,
        not_before=parse_when(not_before, field="--not-before"),
        relay=relay,
        bulk=bulk,
        override_suppression=override_suppression,
    )

    async def accept() -> dict[str, object]:
        async with lent_resources(data_dir) as resources:
            mailer = Mailer(pool=resources.pool, public_url=section(MailSettings).public_url)
            accepted = await mailer.send(new)
        return {"id": accepted.id, "is_new": accepted.is_new}

    print_record(asyncio.run(accept()), as_json=as_json)


def _variables(text: str) -> dict[str, object]:
    try:
        return msgspec.json.decode(text, type=dict[str, object])
    except (msgspec.DecodeError, UnicodeError, RecursionError) as refused:
        raise InvalidInput("--variables", f"is not a JSON object: {refused}") from None
