"""What goes over HTTP, as types. Input refuses unknown fields."""

from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from penstock.contract.paging import Limit as PageLimit
from penstock.domains.mail import domain_group, inspect, relay, suppression, template_store
from penstock.domains.mail.inspect import MailStatus
from penstock.domains.mail.new_mail import NewAttachment
from penstock.domains.mail.new_mail import NewMail as Asked
from penstock.domains.mail.relay import LimitScope, TlsPolicy
from penstock.kernel.inspect import AttemptView

BATCH_MAX = 1_000

Instant = Annotated[datetime, Meta(tz=True)]
MailId = Annotated[int, Meta(ge=1, le=2**63 - 1)]
Name = Annotated[str, Meta(min_length=1, max_length=63)]
AddressText = Annotated[str, Meta(min_length=1, max_length=1_000)]
Cursor = Annotated[str, Meta(description="The `next` of the page before.", max_length=320)]
Seconds = Annotated[float, Meta(gt=0)]

# ------------------------------------------------------------------------------- parameters


class MailPath(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which mail."""

    id: MailId


class MailQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which page of mails."""

    recipient: AddressText | None = None
    tag: str | None = None
    status: MailStatus | None = None
    from_: Instant | None = field(name="from", default=None)
    until: Instant | None = None
    after: Cursor | None = None
    limit: PageLimit = 100


class NameRef(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which relay or template."""

    name: Name


class AddressRef(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which address."""

    address: AddressText


class TokenRef(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The token of a link for unsubscribing."""

    token: Annotated[str, Meta(max_length=200)]


class SuppressionQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which page of suppressed addresses."""

    after: Cursor | None = None
    limit: PageLimit = 100


# ------------------------------------------------------------------------------------ mails


class NewMail(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A mail to send: with subject and bodies, or with a template and its variables."""

    from_: AddressText = field(name="from")
    to: list[AddressText] = []
    cc: list[AddressText] = []
    bcc: list[AddressText] = []
    reply_to: list[AddressText] = []
    subject: str | None = None
    text: str | None = None
    html: str | None = None
    headers: dict[str, str] = {}
    tags: list[str] = []
    attachments: list[NewAttachment] = []
    template: Name | None = None
    language: str | None = None
    variables: dict[str, Any] = {}
    key: str | None = None
    not_before: Instant | None = None
    not_after: Instant | None = None
    relay: Name | None = None
    unsubscribe: bool = False
    bulk: bool = False
    override_suppression: bool = False


class AcceptedMail(Struct, frozen=True, kw_only=True):
    """The mail is kept; `is_new` is false when its key was known already."""

    id: int
    is_new: bool


class Result(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of one mail of a batch."""

    index: int
    outcome: Literal["accepted", "existing", "conflict", "invalid"]
    id: int | None = None
    detail: str | None = None


class Mail(Struct, frozen=True, kw_only=True):
    """A mail and how far it is; the fields are those of the view `mail_outbox`."""

    id: int
    status: MailStatus
    retry_count: int
    next_attempt_at: Instant
    last_error: str | None
    last_attempt_at: Instant | None
    lane: str
    from_: str = field(name="from")
    recipients: list[str]
    subject: str
    tags: list[str]
    relay: str | None
    created_at: Instant
    ended_at: Instant | None
    recipients_sent: int
    recipients_failed: int


class MailPage(Struct, frozen=True, kw_only=True):
    """Mails, the newest first; `next` is the `after` of the next page."""

    mails: list[Mail]
    next: str | None


class Attempt(Struct, frozen=True, kw_only=True):
    """One attempt; `outcome` is the kernel's word: done, retry, snooze, hold, dead or lost."""

    attempt: int
    outcome: str
    began_at: Instant | None
    ended_at: Instant
    retry_at: Instant | None
    reason: str | None


class MailDetail(Struct, frozen=True, kw_only=True):
    """A mail, its recipients with their results, those before replays, and every attempt."""

    mail: Mail
    recipients: list[inspect.RecipientView]
    past_results: list[inspect.PastResult]
    attempts: list[Attempt]


# ------------------------------------------------------------------- relays, templates, lists


class NewRelay(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A relay; a password is sealed, and never shown again."""

    name: Name
    host: Annotated[str, Meta(min_length=1, max_length=253)]
    port: Annotated[int, Meta(ge=1, le=65_535)] = relay.SUBMISSION_PORT
    tls: TlsPolicy = "starttls"
    username: str | None = None
    password: str | None = None
    priority: Annotated[int, Meta(ge=0, le=1_000)] = 100
    connections_max: int = 10
    messages_per_connection_max: int = 100
    idle_seconds: Seconds = 30
    is_enabled: bool = True


class SmtpRelay(Struct, frozen=True, kw_only=True):
    """A relay, without its password."""

    name: str
    host: str
    port: int
    tls: TlsPolicy
    username: str | None
    priority: int
    connections_max: int
    messages_per_connection_max: int
    idle_seconds: float
    is_enabled: bool


class Relays(Struct, frozen=True, kw_only=True):
    """All relays, in the order in which they are tried."""

    relays: list[SmtpRelay]


class Limit(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A limit of a relay, a sender, a domain or a group; `*` is for all others of its scope."""

    scope: LimitScope
    name: Annotated[str, Meta(min_length=1, max_length=320)]
    per_second: Annotated[float, Meta(ge=0.001, le=100_000)] | None = None
    per_minute: Annotated[float, Meta(ge=0.01, le=1_000_000)] | None = None
    per_hour: Annotated[int, Meta(ge=1, le=100_000_000)] | None = None
    per_day: Annotated[int, Meta(ge=1, le=1_000_000_000)] | None = None


class Limits(Struct, frozen=True, kw_only=True):
    """All limits."""

    limits: list[Limit]


class DomainGroup(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Domains that one provider receives for; a limit of the scope `group` has this name."""

    name: Name
    domains: list[Annotated[str, Meta(min_length=1, max_length=253)]]


class DomainGroups(Struct, frozen=True, kw_only=True):
    """All groups of domains."""

    groups: list[DomainGroup]


class NewTemplate(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A new version of a template, in Jinja2."""

    name: Name
    subject: str
    language: str = "en"
    text: str | None = None
    html: str | None = None


class Templates(Struct, frozen=True, kw_only=True):
    """Templates by name and language."""

    templates: list[template_store.TemplateView]


class NewSuppression(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An address that gets no mail."""

    address: AddressText
    reason: suppression.SuppressionReason = "manual"
    expires_at: Instant | None = None


class Suppression(Struct, frozen=True, kw_only=True):
    """An address that gets no mail, and why."""

    address: str
    reason: str
    expires_at: Instant | None
    mail_id: int | None
    created_at: Instant
    created_by: str


class SuppressionPage(Struct, frozen=True, kw_only=True):
    """Suppressed addresses; `next` is the `after` of the next page."""

    suppressions: list[Suppression]
    next: str | None


# ------------------------------------------------------------------------------ conversions


def to_new_mail(given: NewMail) -> Asked:
    """Return a mail as the domain takes it."""
    return Asked(
        sender=given.from_,
        to=given.to,
        cc=given.cc,
        bcc=given.bcc,
        reply_to=given.reply_to,
        subject=given.subject,
        text=given.text,
        html=given.html,
        headers=given.headers,
        tags=given.tags,
        attachments=given.attachments,
        template=given.template,
        language=given.language,
        variables=given.variables,
        key=given.key,
        not_before=given.not_before,
        not_after=given.not_after,
        relay=given.relay,
        unsubscribe=given.unsubscribe,
        bulk=given.bulk,
        override_suppression=given.override_suppression,
    )


def to_wire_mail(found: inspect.MailView) -> Mail:
    """Return a mail for a response."""
    return Mail(
        id=found.id,
        status=found.status,  # pyright: ignore[reportArgumentType]  The view has no others.
        retry_count=found.retry_count,
        next_attempt_at=found.next_attempt_at,
        last_error=found.last_error,
        last_attempt_at=found.last_attempt_at,
        lane=found.lane,
        from_=found.sender,
        recipients=found.recipients,
        subject=found.subject,
        tags=found.tags,
        relay=found.relay,
        created_at=found.created_at,
        ended_at=found.ended_at,
        recipients_sent=found.recipients_sent,
        recipients_failed=found.recipients_failed,
    )


def to_wire_attempt(found: AttemptView) -> Attempt:
    """Return an attempt for a response."""
    return Attempt(
        attempt=found.attempt,
        outcome=found.outcome,
        began_at=found.claimed_at,
        ended_at=found.settled_at,
        retry_at=found.retry_at,
        reason=found.reason,
    )


def to_relay(given: NewRelay) -> relay.SmtpRelay:
    """Return a relay as the domain takes it."""
    return relay.SmtpRelay(
        name=given.name,
        host=given.host,
        port=given.port,
        tls=given.tls,
        username=given.username,
        password=given.password,
        priority=given.priority,
        connections_max=given.connections_max,
        messages_per_connection_max=given.messages_per_connection_max,
        idle_time=timedelta(seconds=min(given.idle_seconds, 1e6)),
        is_enabled=given.is_enabled,
    )


def to_wire_relay(found: relay.SmtpRelay) -> SmtpRelay:
    """Return a relay for a response."""
    return SmtpRelay(
        name=found.name,
        host=found.host,
        port=found.port,
        tls=found.tls,
        username=found.username,
        priority=found.priority,
        connections_max=found.connections_max,
        messages_per_connection_max=found.messages_per_connection_max,
        idle_seconds=found.idle_time.total_seconds(),
        is_enabled=found.is_enabled,
    )


def to_limit(given: Limit) -> relay.MailLimit:
    """Return a limit as the domain takes it."""
    return relay.MailLimit(
        scope=given.scope,
        name=given.name,
        per_second=given.per_second,
        per_minute=given.per_minute,
        per_hour=given.per_hour,
        per_day=given.per_day,
    )


def to_wire_limit(found: relay.MailLimit) -> Limit:
    """Return a limit for a response."""
    return Limit(
        scope=found.scope,
        name=found.name,
        per_second=found.per_second,
        per_minute=found.per_minute,
        per_hour=found.per_hour,
        per_day=found.per_day,
    )


def to_wire_group(found: domain_group.DomainGroup) -> DomainGroup:
    """Return a group of domains for a response."""
    return DomainGroup(name=found.name, domains=list(found.domains))


def to_wire_suppression(found: suppression.Suppression) -> Suppression:
    """Return a suppression for a response."""
    return Suppression(
        address=found.address,
        reason=found.reason,
        expires_at=found.expires_at,
        mail_id=found.mail_id,
        created_at=found.created_at,
        created_by=found.created_by,
    )
