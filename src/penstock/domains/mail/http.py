"""Mail over REST: mails, templates, relays, limits, suppressions, bounces and unsubscribing."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from penstock.base.errors import InvalidInput
from penstock.base.vault import Vault
from penstock.contract.http import Call, Content, Endpoint, NoParameters, Stream, endpoint
from penstock.contract.paging import read_id, take_page
from penstock.domains.mail import (
    batch,
    domain_group,
    inspect,
    relay,
    suppression,
    template_store,
    wire,
)
from penstock.domains.mail.batcher import MailBatcher
from penstock.domains.mail.bounce import REPORT_BYTES_MAX, BounceInput, read_bounce, read_report
from penstock.domains.mail.enqueue import Mailer
from penstock.domains.mail.event import Announce
from penstock.domains.mail.operate import cancel_mail, replay_mail
from penstock.domains.mail.preview import Previewer, read_salt
from penstock.domains.mail.suppression import TakenBounces
from penstock.domains.mail.template import Template
from penstock.domains.mail.unsubscribe import is_one_click, read_token
from penstock.kernel.inspect import read_attempts
from penstock.kernel.item import ItemId
from penstock.postgres.pool import Pool

MAIL_BYTES_MAX = 25 * 1024 * 1024  # Both bodies, and attachments as base64.
TEMPLATE_BYTES_MAX = 1024 * 1024
GROUP_BYTES_MAX = 3 * 1024 * 1024  # 10,000 domains of 253 characters.
FORM_BYTES_MAX = 4 * 1024
JSON = "application/json"
REPORT = "message/rfc822"
FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")

_PAGE = """<!doctype html><meta charset="utf-8"><title>Unsubscribe</title>
<p>{text}</p>{form}"""
_FORM = """<form method="post"><button name="List-Unsubscribe" value="One-Click">Unsubscribe
</button></form>"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """The handlers, with what they share. `keys` have signed the links for unsubscribing."""

    pool: Pool
    vault: Vault
    mailer: Mailer
    batcher: MailBatcher
    previewer: Previewer
    announce: Announce
    keys: Sequence[bytes]

    async def send(self, call: Call[NoParameters, wire.NewMail]) -> wire.AcceptedMail:
        """Accept a mail."""
        accepted = await self.batcher.accept(wire.to_new_mail(call.body))
        return wire.AcceptedMail(id=accepted.id, is_new=accepted.is_new)

    async def send_batch(self, call: Call[NoParameters, Stream]) -> Content:
        """Accept many mails."""
        return await batch.answer_batch(call.body, mailer=self.mailer, batcher=self.batcher)

    async def preview(self, call: Call[wire.MailPath, None]) -> Content:
        """Show the message that a relay gets."""
        message = await self.previewer.preview(call.parameters.id)
        return Content(body=message.content, media_type=REPORT)

    # ------------------------------------------------------------ relays and templates

    async def put_relay(self, call: Call[NoParameters, wire.NewRelay]) -> wire.SmtpRelay:
        """Create or replace a relay."""
        given = wire.to_relay(call.body)
        async with call.connection() as db:
            await relay.put_relay(db, given, vault=self.vault, who=call.who)
        return wire.to_wire_relay(given)

    async def add_template(
        self, call: Call[NoParameters, wire.NewTemplate]
    ) -> template_store.TemplateView:
        """Store a new version of a template."""
        given = call.body
        template = Template(
            name=given.name,
            language=given.language,
            version=0,
            subject=given.subject,
            text=given.text,
            html=given.html,
        )
        async with call.connection() as db:
            await template_store.add_template(
                db, template, renderer=self.mailer.renderer, who=call.who
            )
            found = await template_store.list_templates(db, name=given.name)
        language = template_store.normalise_language(given.language)
        return next(each for each in found if each.language == language)

    # ----------------------------------------------------------------------- recipients

    async def take_bounces(self, call: Call[NoParameters, Stream]) -> TakenBounces:
        """Take a report of bounces or a complaint."""
        content = await batch.read_all(call.body)
        is_json = call.body.media_type == JSON
        async with call.connection() as db:
            salt = await read_salt(db)
            bounces = (
                [read_bounce(content, salt=salt)] if is_json else read_report(content, salt=salt)
            )
            # A report may come from anybody; JSON needs an API key.
            return await suppression.take_bounces(
                db, bounces, announce=self.announce, who=call.who, may_name=is_json
            )

    async def show_unsubscribe(self, call: Call[wire.TokenRef, None]) -> Content:
        """Show a page with a button: mail scanners open links, and must not unsubscribe anybody."""
        read_token(self.keys, call.parameters.token)
        return _page("Do you want to receive no more newsletters from this sender?", has_form=True)

    async def unsubscribe(self, call: Call[wire.TokenRef, Stream]) -> Content:
        """Unsubscribe the recipient that the token names (RFC 8058)."""
        asked = read_token(self.keys, call.parameters.token)
        if not is_one_click(await batch.read_all(call.body)):
            raise InvalidInput("body", "must have List-Unsubscribe=One-Click")
        async with call.connection() as db:
            await suppression.unsubscribe(db, asked)
        return _page("You receive no more newsletters from this sender.")


# ------------------------------------------------------------------------------------- mails


async def list_mails(call: Call[wire.MailQuery, None]) -> wire.MailPage:
    """Show a page of mails."""
    query = call.parameters
    only = inspect.MailFilter(
        recipient=query.recipient,
        tag=query.tag,
        status=query.status,
        from_at=query.from_,
        until_at=query.until,
    )
    async with call.connection() as db:
        page = await inspect.list_mails(
            db, only=only, before=read_id(query.after), limit=query.limit
        )
    following = None if page.next is None else str(page.next)
    return wire.MailPage(mails=[wire.to_wire_mail(each) for each in page.mails], next=following)


async def show_mail(call: Call[wire.MailPath, None]) -> wire.MailDetail:
    """Show a mail, its recipients, their results, and every attempt."""
    mail_id = call.parameters.id
    async with call.connection() as db:
        found = await inspect.read_mail(db, mail_id)
        recipients = await inspect.list_recipients(db, mail_id)
        past_results = await inspect.list_past_results(db, mail_id)
        attempts = await read_attempts(db, ItemId(mail_id))
    return wire.MailDetail(
        mail=wire.to_wire_mail(found),
        recipients=recipients,
        past_results=past_results,
        attempts=[wire.to_wire_attempt(each) for each in attempts],
    )


async def cancel(call: Call[wire.MailPath, None]) -> wire.Mail:
    """Cancel a mail."""
    async with call.connection() as db:
        await cancel_mail(db, call.parameters.id, who=call.who)
        return wire.to_wire_mail(await inspect.read_mail(db, call.parameters.id))


async def replay(call: Call[wire.MailPath, None]) -> wire.Mail:
    """Send a failed mail again."""
    async with call.connection() as db:
        await replay_mail(db, call.parameters.id, who=call.who)
        return wire.to_wire_mail(await inspect.read_mail(db, call.parameters.id))


# ---------------------------------------------------------------------- relays and the rest


async def list_relays(call: Call[NoParameters, None]) -> wire.Relays:
    """Show the relays."""
    async with call.connection() as db:
        found = await relay.list_relays(db)
    return wire.Relays(relays=[wire.to_wire_relay(each) for each in found])


async def remove_relay(call: Call[wire.NameRef, None]) -> None:
    """Remove a relay."""
    async with call.connection() as db:
        await relay.remove_relay(db, call.parameters.name, who=call.who)


async def list_limits(call: Call[NoParameters, None]) -> wire.Limits:
    """Show the limits."""
    async with call.connection() as db:
        found = await relay.list_limits(db)
    return wire.Limits(limits=[wire.to_wire_limit(each) for each in found])


async def put_limit(call: Call[NoParameters, wire.Limit]) -> wire.Limit:
    """Set or remove a limit."""
    async with call.connection() as db:
        await relay.put_limit(db, wire.to_limit(call.body), who=call.who)
    return call.body


async def list_groups(call: Call[NoParameters, None]) -> wire.DomainGroups:
    """Show the groups of domains."""
    async with call.connection() as db:
        found = await domain_group.list_domain_groups(db)
    return wire.DomainGroups(groups=[wire.to_wire_group(each) for each in found])


async def put_group(call: Call[NoParameters, wire.DomainGroup]) -> wire.DomainGroup:
    """Set or remove a group of domains."""
    given = domain_group.DomainGroup(name=call.body.name, domains=call.body.domains)
    async with call.connection() as db:
        made = await domain_group.put_domain_group(db, given, who=call.who)
    return wire.to_wire_group(made)


async def list_templates(call: Call[NoParameters, None]) -> wire.Templates:
    """Show the templates."""
    async with call.connection() as db:
        found = await template_store.list_templates(db)
    return wire.Templates(templates=found)


async def list_suppressions(call: Call[wire.SuppressionQuery, None]) -> wire.SuppressionPage:
    """Show a page of suppressed addresses."""
    query = call.parameters
    async with call.connection() as db:
        found = await suppression.list_suppressions(db, after=query.after, limit=query.limit + 1)
    page, following = take_page(found, query.limit, lambda each: each.address)
    return wire.SuppressionPage(
        suppressions=[wire.to_wire_suppression(each) for each in page], next=following
    )


async def suppress(call: Call[NoParameters, wire.NewSuppression]) -> None:
    """Suppress an address."""
    given = call.body
    async with call.connection() as db:
        await suppression.suppress(
            db, given.address, reason=given.reason, expires_at=given.expires_at, who=call.who
        )


async def unsuppress(call: Call[wire.AddressRef, None]) -> None:
    """Remove an address from the list."""
    async with call.connection() as db:
        await suppression.unsuppress(db, call.parameters.address, who=call.who)


def endpoints(api: Api) -> tuple[Endpoint, ...]:
    """Return the table of endpoints."""
    return (
        endpoint(
            "POST", "/mails", api.send, scope="produce", statuses=(202,),
            summary="Accept a mail; a worker sends it",
            body_bytes_max=MAIL_BYTES_MAX,
        ),
        endpoint(
            "POST", "/mails/batch", api.send_batch, scope="produce",
            summary="Accept 1 to 1,000 mails, with one result for each",
            streams={JSON: (list[wire.NewMail], list[wire.Result])},
            body_bytes_max=batch.BODY_BYTES_MAX,
        ),
        endpoint(
            "GET", "/mails", list_mails, scope="read",
            summary="List mails by recipient, tag, status and time, the newest first",
        ),
        endpoint(
            "GET", "/mails/{id}", show_mail, scope="read",
            summary="Show a mail, the result of each recipient, and every attempt",
        ),
        endpoint(
            "GET", "/mails/{id}/preview", api.preview, scope="read",
            summary="Show the message as a relay gets it, without a DKIM signature",
            media_type=REPORT,
        ),
        endpoint(
            "POST", "/mails/{id}/cancel", cancel, scope="admin",
            summary="Cancel a mail that no worker has claimed",
        ),
        endpoint(
            "POST", "/mails/{id}/replay", replay, scope="admin",
            summary="Try a failed or held mail again, for recipients that did not get it",
        ),
        endpoint(
            "GET", "/mail-relays", list_relays, scope="read",
            summary="List relays in the order in which they are tried",
        ),
        endpoint(
            "PUT", "/mail-relays", api.put_relay, scope="admin",
            summary="Create or replace a relay",
        ),
        endpoint(
            "DELETE", "/mail-relays/{name}", remove_relay, scope="admin", statuses=(204,),
            summary="Remove a relay",
        ),
        endpoint(
            "GET", "/mail-limits", list_limits, scope="read",
            summary="List the limits of relays, senders, domains and groups",
        ),
        endpoint(
            "PUT", "/mail-limits", put_limit, scope="admin",
            summary="Set a limit; without any number it is removed",
        ),
        endpoint(
            "GET", "/mail-groups", list_groups, scope="read",
            summary="List the groups of domains",
        ),
        endpoint(
            "PUT", "/mail-groups", put_group, scope="admin",
            summary="Set the domains of a group; without any it is removed",
            body_bytes_max=GROUP_BYTES_MAX,
        ),
        endpoint(
            "GET", "/mail-templates", list_templates, scope="read",
            summary="List the latest version of each template and language",
        ),
        endpoint(
            "POST", "/mail-templates", api.add_template, scope="admin", statuses=(201,),
            summary="Store a new version of a template",
            body_bytes_max=TEMPLATE_BYTES_MAX,
        ),
        endpoint(
            "GET", "/mail-suppressions", list_suppressions, scope="read",
            summary="List suppressed addresses",
        ),
        endpoint(
            "POST", "/mail-suppressions", suppress, scope="admin", statuses=(204,),
            summary="Suppress an address",
        ),
        endpoint(
            "DELETE", "/mail-suppressions/{address}", unsuppress, scope="admin", statuses=(204,),
            summary="Let an address receive mail again",
        ),
        endpoint(
            "POST", "/mails/bounces", api.take_bounces, scope="admin",
            summary="Take a bounce report (RFC 3464), a complaint (ARF) or a bounce as JSON",
            streams={
                JSON: (BounceInput, TakenBounces),
                REPORT: (str, TakenBounces),
            },
            body_bytes_max=REPORT_BYTES_MAX,
        ),
        endpoint(
            "GET", "/mails/unsubscribe/{token}", api.show_unsubscribe, scope=None,
            summary="Show the page behind the link for unsubscribing",
            media_type="text/html",
        ),
        endpoint(
            "POST", "/mails/unsubscribe/{token}", api.unsubscribe, scope=None,
            summary="Unsubscribe with one click (RFC 8058)",
            media_type="text/html",
            streams=dict.fromkeys(FORMS, (str, str)),
            body_bytes_max=FORM_BYTES_MAX,
        ),
    )  # fmt: skip


def _page(text: str, *, has_form: bool = False) -> Content:
    page = _PAGE.format(text=escape(text), form=_FORM if has_form else "")
    return Content(body=page.encode(), media_type="text/html; charset=utf-8")
