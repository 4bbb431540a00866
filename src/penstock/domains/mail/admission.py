"""The gates that a mail passes before it is sent: closed ones first, then all rates at once.

Breaker and cooldowns come first, so that a refusal loses no instant; then `admit` waits for the
instant that all rates have in common; limits per hour and day are rows and come last: what was
taken from them is not given back. A recipient whose domain refuses waits; the others are sent.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial

from penstock.base.aio import finish
from penstock.domains.mail.address import domain_of
from penstock.domains.mail.loader import LoadedMail
from penstock.domains.mail.relay import LimitScope, SmtpRelay
from penstock.limits.admit import LEAVE_GRACE, admit
from penstock.limits.gate import Limit, Permit, ProcessGate, Refusal, Rules, Verdict
from penstock.postgres.pool import Pool
from penstock.postgres.statement import statement

TAKE_QUOTA = statement(__package__, "take_quota.sql")

# The SMTP client queues for its connections; the gate only bounds what waits there.
CONCURRENCY = 1_000
PERMIT_SLACK = timedelta(seconds=30)  # A permit outlives the longest transaction.
WAIT_MIN = timedelta(seconds=1)


@dataclass(slots=True, kw_only=True)
class MailAdmission:
    """The permits of one mail. `allowed` are the numbers of recipients that may be sent to now;
    `refusal` says when to come back for the others. `domains` has those not refused so far.
    """

    mail: LoadedMail
    relay: str
    domains: dict[str, list[int]]
    allowed: Sequence[int] = ()
    relay_permit: Permit | None = None
    domain_permits: dict[str, Permit] = field(default_factory=dict)
    refusal: Refusal | None = None

    def refuse(self, refusal: Refusal, scope: LimitScope, name: str) -> None:
        """Send nothing to a domain or to those of a group now, or nothing at all."""
        self.refusal = refusal
        group_of = self.mail.limits.group_of
        match scope:
            case "domain":
                del self.domains[name]
            case "group":
                self.domains = {
                    domain: numbers
                    for domain, numbers in self.domains.items()
                    if group_of(domain) != name
                }
            case "relay" | "sender":
                self.domains.clear()

    def limited(self) -> list[tuple[LimitScope, str]]:
        """Return what may have a limit: relay, sender, and groups and domains that are left."""
        if not self.domains:
            return []
        groups = dict.fromkeys(map(self.mail.limits.group_of, self.domains))
        return [
            ("relay", self.relay),
            ("sender", self.mail.sender.address.lower()),
            *(("group", group) for group in groups if group is not None),
            *(("domain", domain) for domain in self.domains),
        ]


class Gates:
    """Enters the gates of a mail and leaves them; permits expire after `permit_ttl`."""

    def __init__(self, *, gate: ProcessGate, pool: Pool, permit_ttl: timedelta) -> None:
        self._gate = gate
        self._pool = pool
        self._rules = Rules(concurrency=CONCURRENCY, permit_ttl=permit_ttl)

    async def enter(
        self, mail: LoadedMail, relay: SmtpRelay, pending: Sequence[int]
    ) -> MailAdmission:
        """Wait until the mail may be sent to some of the recipients, and return the permits."""
        admission = MailAdmission(mail=mail, relay=relay.name, domains=_by_domain(mail, pending))
        try:
            await self._pass_closed(admission)
            await self._pass_rates(admission)
            await self._pass_quotas(admission)
        except BaseException:
            await finish(self.leave(admission, relay_verdict="unknown"), within=LEAVE_GRACE)
            raise
        admission.allowed = [number for numbers in admission.domains.values() for number in numbers]
        if not admission.allowed:
            await self.leave(admission, relay_verdict="unknown")
        return admission

    async def leave(
        self,
        admission: MailAdmission,
        *,
        relay_verdict: Verdict,
        relay_cooldown: timedelta | None = None,
        domain_cooldowns: Mapping[str, timedelta] | None = None,
    ) -> None:
        """Return all permits; a cooldown closes the relay or a domain for everybody."""
        leave = partial(self._gate.leave, rules=self._rules)
        if admission.relay_permit is not None:
            await leave(admission.relay_permit, verdict=relay_verdict, cooldown=relay_cooldown)
        for domain, permit in admission.domain_permits.items():
            cooldown = (domain_cooldowns or {}).get(domain)
            await leave(permit, verdict="unknown", cooldown=cooldown)

    async def _pass_closed(self, admission: MailAdmission) -> None:
        """Enter the relay's breaker, and what a throttling reply has closed."""
        entered = await self._gate.enter(f"mail relay {admission.relay}", self._rules)
        if isinstance(entered, Refusal):
            admission.refuse(entered, "relay", admission.relay)
            return
        admission.relay_permit = entered
        for domain in list(admission.domains):
            entered = await self._gate.enter(f"mail domain {domain}", self._rules)
            if isinstance(entered, Refusal):
                admission.refuse(entered, "domain", domain)
            else:
                admission.domain_permits[domain] = entered

    async def _pass_rates(self, admission: MailAdmission) -> None:
        """Wait for an instant of all rates, without the domains that have none soon enough."""
        while rates := _rates(admission):
            limits = [limit for limit, _, _ in rates]
            answer = await admit(
                partial(self._gate.enter_all, limits),
                self._gate.leave_all,
                rate=max(limit.rate for limit in limits if limit.rate is not None),
            )
            if not isinstance(answer, Refusal):
                return
            _, scope, name = next(each for each in rates if each[0].key == answer.key)
            admission.refuse(answer, scope, name)

    async def _pass_quotas(self, admission: MailAdmission) -> None:
        for scope, name in admission.limited():
            limit = admission.mail.limits.find(scope, name)
            if limit is None or not limit.has_quota:
                continue
            if scope == "domain" and name not in admission.domains:
                continue  # Its group has refused.
            wait = await self._pool.fetchval(TAKE_QUOTA, scope, name, limit.per_hour, limit.per_day)
            if wait is not None:
                after = max(WAIT_MIN, timedelta(seconds=wait))
                admission.refuse(Refusal(after, "rate_limited"), scope, name)
                if not admission.domains:
                    return


def _rates(admission: MailAdmission) -> list[tuple[Limit, LimitScope, str]]:
    """Return the limits of the gate, none of which needs a return, and what each belongs to."""
    return [
        (Limit(key=f"mail rate {scope} {name}", rate=rate), scope, name)
        for scope, name in admission.limited()
        if (limit := admission.mail.limits.find(scope, name)) is not None
        and (rate := limit.rate) is not None
    ]


def _by_domain(mail: LoadedMail, pending: Sequence[int]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for number in pending:
        domain = domain_of(mail.recipients[number].address.address)
        found.setdefault(domain, []).append(number)
    return found
