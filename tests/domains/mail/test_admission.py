"""The gates of a mail on a clock that moves on demand: what each refusal uses up."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from penstock.domains.mail.admission import Gates, MailAdmission
from penstock.domains.mail.loader import LoadedMail
from penstock.domains.mail.mail import Address, Recipient
from penstock.domains.mail.relay import MailLimit, MailLimits, SmtpRelay
from penstock.limits.gate import Verdict
from penstock.limits.local import LocalGate
from tests.domains.mail.outbox import Outbox
from tests.domains.mail.scene import NOON

MINUTE = timedelta(minutes=1)
RELAY = SmtpRelay(name="main", host="relay.test", port=25)


def a_mail(*to: str, limits: list[MailLimit]) -> LoadedMail:
    fields: dict[str, Any] = {
        "id": 1,
        "accepted_at": NOON,
        "sender": Address(address="shop@example.com"),
        "recipients": tuple(Recipient(kind="to", address=Address(address=each)) for each in to),
        "reply_to": (),
        "subject": "Hello",
        "text": "Hi.",
        "html": None,
        "headers": {},
        "tags": (),
        "attachments": (),
        "relay": None,
        "is_unsubscribable": False,
        "done": frozenset(),
        "sent": 0,
        "failure": None,
        "suppressed": frozenset(),
        "message_id": "<1@example.com>",
        "attempts_max": 3,
        "relays": [RELAY],
        "limits": MailLimits(limits),
    }
    return LoadedMail(**fields)


class Scene:
    """Gates of one process, and the mails that pass them."""

    def __init__(self, outbox: Outbox, *limits: MailLimit) -> None:
        self.gate = LocalGate(outbox.clock, chance=lambda: 0.0)
        self._gates = Gates(gate=self.gate, pool=outbox.app.pool, permit_ttl=MINUTE)
        self._limits = list(limits)

    async def enter(self, *to: str) -> MailAdmission:
        """Enter with a mail to these recipients."""
        mail = a_mail(*to, limits=self._limits)
        return await self._gates.enter(mail, RELAY, range(len(to)))

    async def send(
        self,
        *to: str,
        verdict: Verdict = "alive",
        cooldowns: Mapping[str, timedelta] | None = None,
    ) -> list[str]:
        """Enter, leave at once, and return the recipients that could be sent to."""
        admission = await self.enter(*to)
        if admission.domains:
            await self._gates.leave(admission, relay_verdict=verdict, domain_cooldowns=cooldowns)
        return [to[number] for number in admission.allowed]


async def test_a_mail_that_its_domain_refuses_uses_up_no_rate_of_its_relay(
    outbox: Outbox,
) -> None:
    """Else a hot domain would keep the relay from sending to others."""
    scene = Scene(
        outbox,
        MailLimit(scope="relay", name="main", per_second=1),
        MailLimit(scope="domain", name="hot.test", per_minute=1),
    )
    assert await scene.send("a@hot.test") == ["a@hot.test"]
    outbox.clock.advance(timedelta(seconds=1))

    refused = await scene.send("b@hot.test")
    sent = await scene.send("c@cold.test")

    assert refused == []
    assert sent == ["c@cold.test"]


async def test_of_two_domains_the_one_with_a_free_rate_is_sent_to(
    outbox: Outbox,
) -> None:
    scene = Scene(outbox, MailLimit(scope="domain", name="hot.test", per_minute=1))
    await scene.send("a@hot.test")

    admission = await scene.enter("b@hot.test", "c@cold.test")

    assert admission.allowed == [1]
    assert admission.refusal is not None
    assert admission.refusal.reason == "rate_limited"
    assert timedelta(seconds=50) < admission.refusal.after <= MINUTE


async def test_a_sender_at_its_limit_sends_nothing(outbox: Outbox) -> None:
    scene = Scene(outbox, MailLimit(scope="sender", name="shop@example.com", per_minute=1))
    await scene.send("a@hot.test")

    assert await scene.send("b@hot.test", "c@cold.test") == []


async def test_a_domain_that_throttles_is_closed_for_every_mail_and_others_are_not(
    outbox: Outbox,
) -> None:
    scene = Scene(outbox)
    await scene.send("a@hot.test", cooldowns={"hot.test": MINUTE})

    assert await scene.send("b@hot.test", "c@cold.test") == ["c@cold.test"]
    outbox.clock.advance(MINUTE)
    assert await scene.send("b@hot.test") == ["b@hot.test"]


async def test_a_relay_that_fails_again_and_again_is_closed_for_every_mail(
    outbox: Outbox,
) -> None:
    scene = Scene(outbox)
    for _ in range(5):
        await scene.send("a@hot.test", verdict="failing")

    refused = await scene.enter("b@cold.test")

    assert refused.allowed == []
    assert refused.refusal is not None
    assert refused.refusal.reason == "circuit_open"


async def test_a_refused_mail_keeps_no_permit(outbox: Outbox) -> None:
    scene = Scene(outbox, MailLimit(scope="domain", name="hot.test", per_minute=1))
    await scene.send("a@hot.test")

    await scene.send("b@hot.test")

    for key in ("mail relay main", "mail domain hot.test"):
        assert (await scene.gate.inspect(key)).permits_in_use == 0
