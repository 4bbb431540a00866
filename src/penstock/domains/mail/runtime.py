"""What runs when the app opens: the handler of both lanes, services, the API, the fixed fields."""

from collections.abc import Callable
from datetime import timedelta
from functools import partial

from penstock.base.errors import BadSetting, InvalidInput
from penstock.base.settings import Settings, variables_of
from penstock.base.vault import Vault
from penstock.contract import FixedField, Kind, Resources, Runtime, Service
from penstock.domains.mail.address import parse_address
from penstock.domains.mail.admission import PERMIT_SLACK, Gates
from penstock.domains.mail.batcher import MailBatcher
from penstock.domains.mail.dead_mails import DeadMails
from penstock.domains.mail.dkim import DkimKey, read_key, sign
from penstock.domains.mail.enqueue import Mailer
from penstock.domains.mail.event import Announce
from penstock.domains.mail.http import Api, endpoints
from penstock.domains.mail.lanes import BULK_LANE, LANE
from penstock.domains.mail.loader import BlobReader, MailLoader, MailRef
from penstock.domains.mail.preview import Previewer
from penstock.domains.mail.relay import parse_smtp_url
from penstock.domains.mail.relay_state import RelayStates
from penstock.domains.mail.results import ResultWriter
from penstock.domains.mail.retain import Retainer
from penstock.domains.mail.send import Send
from penstock.domains.mail.settings import MailSettings
from penstock.domains.mail.transmit import Transmit
from penstock.domains.mail.unsubscribe import check_public_url, make_token, make_url
from penstock.kernel.item import Hold, Retry
from penstock.kernel.lane import FIELDS
from penstock.limits.gate import ProcessGate

# Beyond the time for SMTP: to wait for a gate, and to write results.
HANDLER_SLACK = timedelta(seconds=60)
UNSUBSCRIBE = "unsubscribe"  # What the keys that sign links are derived for.


def build(
    resources: Resources,
    chosen: MailSettings,
    *,
    transmit: Transmit,
    gate: ProcessGate,
    announce: Announce,
) -> Runtime:
    """Build the domain; mails go out through `gate`, by `transmit`, and events to `announce`."""
    url = chosen.smtp_url
    default = None if url is None else parse_smtp_url(url.get_secret_value())
    loader = MailLoader(vault=resources.vault, default=default)
    blobs = BlobReader(resources.pool)
    unsubscribe_url = _choose_unsubscribe_url(chosen, resources.vault)
    send = Send(
        transmit=transmit,
        gates=Gates(gate=gate, pool=resources.pool, permit_ttl=chosen.mail_timeout + PERMIT_SLACK),
        writer=ResultWriter(resources.pool, announce=announce, log=resources.log),
        blobs=blobs,
        relay_states=RelayStates(pool=resources.pool, log=resources.log),
        timeout=chosen.mail_timeout,
        on_unknown=chosen.mail_on_unknown,
        log=resources.log,
        meter=resources.meter,
        sign=_choose_signer(chosen),
        unsubscribe_url=unsubscribe_url,
        redirect_to=_choose_redirect(chosen),
    )
    mailer = Mailer(pool=resources.pool, public_url=chosen.public_url)
    api = Api(
        pool=resources.pool,
        vault=resources.vault,
        mailer=mailer,
        batcher=MailBatcher(resources.pool, mailer),
        previewer=Previewer(
            pool=resources.pool, loader=loader, blobs=blobs, unsubscribe_url=unsubscribe_url
        ),
        announce=announce,
        keys=() if chosen.public_url is None else resources.vault.derive(UNSUBSCRIBE),
    )
    return Runtime(
        endpoints=endpoints(api),
        kinds=[
            Kind(
                lane=lane,
                payload_type=MailRef,
                handle=send,
                preload=loader.preload,
                timeout=chosen.mail_timeout + HANDLER_SLACK,
                when_unknown=Hold if chosen.mail_on_unknown == "hold" else Retry,
            )
            for lane in (LANE, BULK_LANE)
        ],
        services=[
            Service(
                name="mail.retention", run=Retainer(pool=resources.pool, log=resources.log).run
            ),
            Service(
                name="mail.dead",
                run=DeadMails(
                    pool=resources.pool,
                    announce=announce,
                    log=resources.log,
                    meter=resources.meter,
                ).run,
            ),
        ],
        apis=[mailer],
        fixed_fields=dict.fromkeys((LANE, BULK_LANE), fixed_fields(resources.settings, chosen)),
    )


def fixed_fields(settings: Settings, chosen: MailSettings) -> list[FixedField]:
    """Return the fields that variables fix: only those that are set."""
    fixed: list[FixedField] = []
    if "mail_on_unknown" in chosen.model_fields_set:
        fixed.append(FixedField("on_lost", chosen.mail_on_unknown, "PENSTOCK_MAIL_ON_UNKNOWN"))
    for name, each in FIELDS.items():
        setting = each.rule.setting
        if setting is None or setting not in settings.model_fields_set:
            continue
        variable = variables_of(Settings, setting)[0]
        if variable.startswith("DISPATCH_"):
            fixed.append(FixedField(name, getattr(settings, setting), variable))
    return fixed


def _choose_signer(chosen: MailSettings) -> Callable[[bytes, str], bytes] | None:
    if chosen.dkim_key is None:
        return None
    assert chosen.dkim_domain is not None
    assert chosen.dkim_selector is not None
    try:
        key = read_key(
            chosen.dkim_key.read_bytes(),
            domain=chosen.dkim_domain,
            selector=chosen.dkim_selector,
        )
    except InvalidInput as refused:
        raise BadSetting("PENSTOCK_DKIM_KEY", str(refused)) from refused
    return partial(_sign, key)


def _sign(key: DkimKey, content: bytes, domain: str) -> bytes:
    """Sign a mail whose sender is in the domain of the key."""
    if domain != key.domain and not domain.endswith("." + key.domain):
        return content
    return sign(content, key)


def _choose_unsubscribe_url(chosen: MailSettings, vault: Vault) -> Callable[[int], str] | None:
    if chosen.public_url is None:
        return None
    try:
        check_public_url(chosen.public_url, field="PENSTOCK_PUBLIC_URL")
    except InvalidInput as refused:
        raise BadSetting(refused.field, refused.reason) from refused
    return partial(_unsubscribe_url, chosen.public_url, vault.derive(UNSUBSCRIBE)[0])


def _unsubscribe_url(public_url: str, key: bytes, mail_id: int) -> str:
    return make_url(public_url, make_token(key, mail_id=mail_id, recipient_no=0))


def _choose_redirect(chosen: MailSettings) -> str | None:
    if chosen.mail_redirect_to is None:
        return None
    try:
        return parse_address(chosen.mail_redirect_to, field="").address
    except InvalidInput as refused:
        raise BadSetting("PENSTOCK_MAIL_REDIRECT_TO", refused.reason) from refused
