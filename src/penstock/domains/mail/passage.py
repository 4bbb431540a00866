"""The gates that a mail passes before it is sent: relay, sender, each group and each domain.

A recipient whose domain is closed waits; the others are sent. Limits per hour and day are rows.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from penstock.base.aio import finish
from penstock.domains.mail.address import domain_of
from penstock.domains.mail.loader import LoadedMail
from penstock.domains.mail.relay import Scope, SmtpRelay
from penstock.limits.admit import LEAVE_GRACE
from penstock.limits.gate import Gate, Permit, Refusal, Rules, Verdict
from penstock.postgres.pool import Pool
from penstock.postgres.statement import statement

TAKE_QUOTA = statement(__package__, "take_quota.sql")

# The SMTP client queues for its connections; the gate only bounds what waits there.
CONCURRENCY = 1_000
PERMIT_SLACK = timedelta(seconds=30)  # A permit outlives the longest transaction.
WAIT_MIN = timedelta(seconds=1)


@dataclass(slots=True, kw_only=True)
class Passage:
    """The permits of one mail. `allowed` are the numbers of recipients that may be sent to now."""

    mail: LoadedMail
    permits: list[tuple[Scope, Permit, Rules]] = field(default_factory=list)
    allowed: list[int] = field(default_factory=list)
    refusal: Refusal | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gates:
    """Enters all gates of a mail, or none."""

    gate: Gate
    pool: Pool
    permit_ttl: timedelta

    async def enter(self, mail: LoadedMail, relay: SmtpRelay, pending: Sequence[int]) -> Passage:
        """Return the permits; without any, `refusal` says when to come back."""
        passage = Passage(mail=mail)
        try:
            await self._enter(passage, relay, pending)
        except BaseException:
            await finish(self.leave(passage, relay_verdict="unknown"), within=LEAVE_GRACE)
            raise
        if not passage.allowed:
            await self.leave(passage, relay_verdict="unknown")
            passage.permits.clear()
        return passage

    async def leave(
        self,
        passage: Passage,
        *,
        relay_verdict: Verdict,
        relay_cooldown: timedelta | None = None,
        domain_cooldowns: dict[str, timedelta] | None = None,
    ) -> None:
        """Return all permits; a cooldown closes the relay or a domain for everybody."""
        for scope, permit, rules in passage.permits:
            verdict: Verdict = relay_verdict if scope == "relay" else "unknown"
            cooldown = relay_cooldown if scope == "relay" else None
            if scope == "domain" and domain_cooldowns:
                cooldown = domain_cooldowns.get(permit.key.rpartition(" ")[2])
            await self.gate.leave(permit, rules, verdict=verdict, cooldown=cooldown)

    async def _enter(self, passage: Passage, relay: SmtpRelay, pending: Sequence[int]) -> None:
        if not await self._pass(passage, "relay", relay.name):
            return
        if not await self._pass(passage, "sender", passage.mail.sender.address.lower()):
            return
        groups: dict[str, bool] = {}  # Whether the mail may go to it.
        for domain, recipients in _by_domain(passage.mail, pending).items():
            group = passage.mail.limits.group_of(domain)
            if group is not None and group not in groups:
                groups[group] = await self._pass(passage, "group", group)
            if group is not None and not groups[group]:
                continue
            if await self._pass(passage, "domain", domain):
                passage.allowed += recipients
        wait = max((permit.wait for _, permit, _ in passage.permits), default=0.0)
        if passage.allowed and wait > 0:
            await asyncio.sleep(wait)

    async def _pass(self, passage: Passage, scope: Scope, name: str) -> bool:
        limits = passage.mail.limits
        rules = limits.rules(scope, name, concurrency=CONCURRENCY, ttl=self.permit_ttl)
        permit = await self.gate.enter(f"mail {scope} {name}", rules)
        if isinstance(permit, Refusal):
            passage.refusal = permit
            return False
        limit = limits.find(scope, name)
        if limit is not None and limit.has_quota:
            wait = await self.pool.fetchval(TAKE_QUOTA, scope, name, limit.per_hour, limit.per_day)
            if wait is not None:
                await self.gate.leave(permit, rules, verdict="unknown")
                after = max(WAIT_MIN, timedelta(seconds=wait))
                passage.refusal = Refusal(after, "rate_limited")
                return False
        passage.permits.append((scope, permit, rules))
        return True


def _by_domain(mail: LoadedMail, pending: Sequence[int]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for number in pending:
        domain = domain_of(mail.recipients[number].address.address)
        found.setdefault(domain, []).append(number)
    return found
