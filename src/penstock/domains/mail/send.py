"""One attempt of one mail: suppression, gates, SMTP, one result for each recipient.

What is final for a recipient is written before the outcome is returned, so that a crash after it
sends no second copy. Between the relay's last reply and that write lies the one unknown moment.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from time import monotonic
from typing import Literal, get_args

from msgspec import Struct

from penstock.base.aio import finish
from penstock.base.errors import InvalidInput
from penstock.base.log import Logger
from penstock.base.meter import Meter
from penstock.domains.mail.address import domain_of, needs_smtputf8, suppression_key
from penstock.domains.mail.admission import Gates, MailAdmission
from penstock.domains.mail.classify import Class, classify, classify_failure
from penstock.domains.mail.event import MailEvent
from penstock.domains.mail.loader import BlobReader, BrokenMail, LoadedMail, MailRef
from penstock.domains.mail.message import Message, build_message, without_smtputf8
from penstock.domains.mail.metrics import RECIPIENTS, REPLIES, SEND_SECONDS
from penstock.domains.mail.relay import SmtpRelay, choose
from penstock.domains.mail.relay_state import RelayStates
from penstock.domains.mail.reply import RelayReply
from penstock.domains.mail.results import MailEnding, ResultRow, ResultWriter, clean
from penstock.domains.mail.transmit import MailTransmission, Replied, TransmissionFailed, Transmit
from penstock.kernel.item import Dead, Done, Hold, Item, Outcome, Retry, Snooze
from penstock.limits.admit import LEAVE_GRACE
from penstock.limits.gate import Refusal, RefusalReason, Verdict

# How long a relay or a domain that asks for less gets nothing. Providers count by the minute.
THROTTLE_COOLDOWN = timedelta(minutes=1)
# After a fault of the relay; its breaker opens after a few, and closes after as long.
FAULT_WAIT = timedelta(seconds=30)
NO_RELAY_WAIT = timedelta(minutes=1)  # How soon to look whether there is a relay again.
# Greylisting servers accept after 1 to 15 minutes, some after an hour.
GREYLIST_WAITS = tuple(timedelta(minutes=each) for each in (5, 15, 30, 60))
TRANSACTIONS_MAX = 20  # Of one mail in one attempt, when a relay takes few recipients at a time.

# Reasons of gates: the mail waits, and nothing is wrong with it.
WAITS = frozenset(get_args(RefusalReason))
NO_SMTPUTF8 = "smtputf8"  # The client's word for a relay that does not offer it.

# The mail is not refused: another relay may take it now.
ELSEWHERE: frozenset[Class] = frozenset({"relay_fault", "throttled"})
FINAL: frozenset[Class] = frozenset({"permanent", "permanent_suppress"})


class SendAttempt(Struct, kw_only=True):
    """What this attempt has found out: results that are final, and why others are still open.

    A struct, because a worker makes one for every mail (ADR 0009).
    """

    mail: LoadedMail
    token: int
    message: Message | None = None
    rows: dict[int, ResultRow] = {}
    open: dict[int, tuple[Class, str]] = {}
    refusal: Refusal | None = None

    @property
    def has_unknown(self) -> bool:
        """Whether a recipient may have got the mail without a reply."""
        return any(each == "unknown" for each, _ in self.open.values())

    def end(self, number: int, result: str, class_: str, **about: object) -> None:
        """Note a final result of a recipient."""
        self.open.pop(number, None)
        self.rows[number] = ResultRow(
            mail_id=self.mail.id,
            token=self.token,
            recipient_no=number,
            result=result,
            class_=class_,
            **about,  # pyright: ignore[reportArgumentType]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """The handler of the mail lanes.

    `sign` adds a DKIM signature for senders of its domain. `unsubscribe_url` makes the link of a
    mail. `redirect_to` gets every mail in place of its recipients.
    """

    transmit: Transmit
    gates: Gates
    writer: ResultWriter
    blobs: BlobReader
    relay_states: RelayStates
    timeout: timedelta
    on_unknown: Literal["retry", "hold"]
    log: Logger
    meter: Meter
    sign: Callable[[bytes, str], bytes] | None = None
    unsubscribe_url: Callable[[int], str] | None = None
    redirect_to: str | None = None

    async def __call__(self, item: Item[LoadedMail | BrokenMail | MailRef]) -> Outcome:
        """Send to all recipients without a result, and say what is left."""
        mail = item.payload
        if isinstance(mail, MailRef):
            return Dead("the mail is gone")
        if isinstance(mail, BrokenMail):
            return Dead(mail.reason)
        attempt = SendAttempt(mail=mail, token=item.token)
        refused = await self._run(attempt)
        if refused is not None:
            return refused
        outcome = self._outcome(attempt, attempt_no=item.attempt)
        if attempt.rows and not await self._record(attempt):
            return Retry("the lease was lost before the results were written")
        return outcome

    async def _run(self, attempt: SendAttempt) -> Outcome | None:
        """Fill the attempt; an outcome is returned if nothing can be sent at all."""
        mail = attempt.mail
        pending: list[int] = []
        for number, recipient in enumerate(mail.recipients):
            if number in mail.done:
                continue
            if mail.suppressed and suppression_key(recipient.address.address) in mail.suppressed:
                attempt.end(number, "suppressed", "suppressed")
            else:
                pending.append(number)
        if not pending:
            return None
        message = await self._build(mail)
        if isinstance(message, Dead):
            return message
        attempt.message = message
        if not mail.relays and mail.relay is None:
            for number in pending:
                attempt.end(number, "captured", "done")
            return None
        relays = choose(mail.relays, mail.relay)
        if not relays:
            name = "" if mail.relay is None else f" {mail.relay}"
            return Snooze(NO_RELAY_WAIT, f"no relay{name} is enabled")
        await self._try_relays(attempt, relays, pending)
        return None

    async def _build(self, mail: LoadedMail, *, is_plain: bool = False) -> Message | Dead:
        """Build the message; a plain one names no recipient that needs SMTPUTF8."""
        contents: dict[str, bytes] | None = {}
        if mail.attachments:
            contents = await self.blobs.read([each.hash for each in mail.attachments])
        if contents is None:
            return Dead("an attachment is gone")
        url = None
        if mail.is_unsubscribable:
            if self.unsubscribe_url is None:
                return Dead("unsubscribe: needs PENSTOCK_PUBLIC_URL")
            url = self.unsubscribe_url(mail.id)
        try:
            full = mail.to_mail(contents, unsubscribe_url=url)
            message = build_message(without_smtputf8(full) if is_plain else full)
            if self.sign is None:
                return message
            content = self.sign(message.content, domain_of(mail.sender.address))
        except InvalidInput as refused:
            # Written with SQL, which checks less. A repeat would be refused as well.
            return Dead(str(refused))
        return Message(content=content, needs_smtputf8=message.needs_smtputf8)

    # ---------------------------------------------------------------------------- relays

    async def _try_relays(
        self, attempt: SendAttempt, relays: Sequence[SmtpRelay], pending: Sequence[int]
    ) -> None:
        """Try one relay after the other; never another one after an unknown result."""
        until = monotonic() + self.timeout.total_seconds()
        for relay in relays:
            if relay.fault is not None:
                await self.relay_states.note(relay, error=relay.fault)
                attempt.open |= dict.fromkeys(pending, ("relay_fault", relay.fault))
                continue
            admission = await self.gates.enter(attempt.mail, relay, pending)
            for number in set(pending).difference(admission.allowed):
                reason = admission.refusal.reason if admission.refusal else "refused"
                # What a relay before this one has said explains more.
                attempt.open.setdefault(number, ("throttled", reason))
                attempt.refusal = admission.refusal
            if admission.allowed:
                await self._try_relay(attempt, relay, admission, until=until)
            pending = [no for no, (why, _) in attempt.open.items() if why in ELSEWHERE]
            if not pending or attempt.has_unknown:
                return
            if attempt.refusal is not None and attempt.refusal.reason == "rate_limited":
                return  # Another relay must not be used to evade a limit.

    async def _try_relay(
        self, attempt: SendAttempt, relay: SmtpRelay, admission: MailAdmission, *, until: float
    ) -> None:
        verdict: Verdict = "unknown"
        cooldown: timedelta | None = None
        try:
            await self._transact(attempt, relay, admission.allowed, until=until)
            verdict, cooldown = _verdict(attempt, admission.allowed)
            error = attempt.open[admission.allowed[0]][1] if verdict == "failing" else None
            await self.relay_states.note(relay, error=error)
        finally:
            left = self.gates.leave(
                admission,
                relay_verdict=verdict,
                relay_cooldown=cooldown,
                domain_cooldowns=_domain_cooldowns(attempt, admission.allowed),
            )
            await (left if verdict != "unknown" else finish(left, within=LEAVE_GRACE))

    async def _transact(
        self, attempt: SendAttempt, relay: SmtpRelay, recipients: Sequence[int], *, until: float
    ) -> None:
        """Send in as many transactions as the relay needs to take all recipients."""
        left = list(recipients)
        for _ in range(TRANSACTIONS_MAX):
            answer = await self._transmit(attempt, relay, left, until=until)
            match answer:
                case Replied(replies):
                    for number, reply in zip(left, replies, strict=True):
                        self._note(attempt, number, reply, relay=relay, recipients=len(left))
                case TransmissionFailed():
                    left = await self._downgrade(attempt, left, answer, relay=relay)
                    if not left:
                        return
                    continue
            before = len(left)
            left = [
                number
                for number in left
                if attempt.open.get(number, ("", ""))[0] == "too_many_recipients"
            ]
            if not left or len(left) == before or monotonic() >= until:
                return

    async def _downgrade(
        self,
        attempt: SendAttempt,
        numbers: Sequence[int],
        failed: TransmissionFailed,
        *,
        relay: SmtpRelay,
    ) -> list[int]:
        """Note a failed transaction; return who gets the mail in a message without SMTPUTF8."""
        plain: list[int] = []
        if failed.kind == NO_SMTPUTF8:
            plain = _plain_recipients(attempt.mail, numbers)
        if plain:
            message = await self._build(attempt.mail, is_plain=True)
            if isinstance(message, Message):
                attempt.message = message
            else:
                plain = []
        refused = [number for number in numbers if number not in plain]
        self._note_failure(attempt, refused, failed, relay=relay)
        return plain

    async def _transmit(
        self, attempt: SendAttempt, relay: SmtpRelay, numbers: Sequence[int], *, until: float
    ) -> Replied | TransmissionFailed:
        message = attempt.message
        assert message is not None, "it is built before a relay is tried"
        addresses = [attempt.mail.recipients[number].address.address for number in numbers]
        if self.redirect_to is not None:
            addresses = [self.redirect_to]
        started = monotonic()
        answer = await self.transmit(
            relay,
            MailTransmission(
                sender=attempt.mail.sender.address,
                recipients=addresses,
                message=message.content,
                smtputf8=message.needs_smtputf8,
                timeout=max(1.0, until - started),
            ),
        )
        self.meter.observe(SEND_SECONDS, monotonic() - started, relay=relay.name)
        if self.redirect_to is not None and isinstance(answer, Replied):
            return Replied(answer.replies * len(numbers))
        return answer

    # --------------------------------------------------------------------------- replies

    def _note(
        self,
        attempt: SendAttempt,
        number: int,
        reply: RelayReply,
        *,
        relay: SmtpRelay,
        recipients: int,
    ) -> None:
        """Note what a reply means for one recipient."""
        found = classify(reply, recipients=recipients)
        self.meter.count(REPLIES, relay=relay.name, reply_class=found)
        about = {
            "phase": reply.phase,
            "code": reply.code,
            "enhanced": reply.enhanced,
            "reply": clean(reply.text),
            "relay": relay.name,
        }
        if found == "done":
            attempt.end(number, "sent", found, **about)
        elif found in FINAL:
            address = attempt.mail.recipients[number].address.address
            suppresses = suppression_key(address) if found == "permanent_suppress" else None
            attempt.end(number, "failed", found, suppresses=suppresses, **about)
        else:
            attempt.open[number] = (found, _shown(reply.code, reply.enhanced, reply.text))

    def _note_failure(
        self,
        attempt: SendAttempt,
        numbers: Sequence[int],
        failed: TransmissionFailed,
        *,
        relay: SmtpRelay,
    ) -> None:
        """Note a transaction without replies: what recipients were refused for still counts."""
        rest: list[int] = []
        for place, number in enumerate(numbers):
            reply = failed.replies[place] if place < len(failed.replies) else None
            if reply is None or classify(reply) == "done":
                rest.append(number)
            else:
                self._note(attempt, number, reply, relay=relay, recipients=len(numbers))
        if failed.reply is not None and not failed.is_unknown:
            for number in rest:
                self._note(attempt, number, failed.reply, relay=relay, recipients=len(numbers))
            return
        found = classify_failure(failed.phase, failed.kind, is_unknown=failed.is_unknown)
        self.meter.count(REPLIES, len(rest), relay=relay.name, reply_class=found)
        for number in rest:
            if found in FINAL:
                attempt.end(
                    number, "failed", found,
                    phase=failed.phase, reply=clean(failed.reason), relay=relay.name,
                )  # fmt: skip
            else:
                attempt.open[number] = (found, f"{failed.phase}: {failed.reason}")

    # --------------------------------------------------------------------------- outcome

    def _outcome(self, attempt: SendAttempt, *, attempt_no: int) -> Outcome:
        """Decide about the mail; on the last attempt, what is open becomes a failed result."""
        if not attempt.open:
            return _ended(attempt)
        classes: set[Class] = {why for why, _ in attempt.open.values()}
        reasons = [text for _, text in attempt.open.values()]
        reason = next((text for text in reasons if text not in WAITS), reasons[0])
        if "unknown" in classes:
            reason = next(text for why, text in attempt.open.values() if why == "unknown")
            if self.on_unknown == "hold":
                return Hold(f"the relay may have the mail: {reason}")
        if classes <= ELSEWHERE:
            return Snooze(self._wait(attempt, classes), reason)
        self.log.info(
            "mail.deferred",
            mail_id=attempt.mail.id,
            attempt=attempt_no,
            reason=", ".join(sorted(classes)),
        )
        if attempt_no >= attempt.mail.attempts_max:
            for number, (why, text) in list(attempt.open.items()):
                attempt.end(number, "failed", why, reply=clean(text))
            return Dead(reason)
        after = None
        if classes <= {"greylisted"}:
            after = GREYLIST_WAITS[min(attempt_no, len(GREYLIST_WAITS)) - 1]
        return Retry(reason, after)

    def _wait(self, attempt: SendAttempt, classes: set[Class]) -> timedelta:
        if attempt.refusal is not None:
            return attempt.refusal.after
        return THROTTLE_COOLDOWN if "throttled" in classes else FAULT_WAIT

    async def _record(self, attempt: SendAttempt) -> bool:
        rows = [attempt.rows[number] for number in sorted(attempt.rows)]
        for row in rows:
            self.meter.count(RECIPIENTS, result=row.result)
        events = [_event(attempt.mail, row) for row in rows if row.result in ("sent", "failed")]
        return await self.writer.write(MailEnding(rows, events))


def _plain_recipients(mail: LoadedMail, numbers: Sequence[int]) -> list[int]:
    """Return those of the recipients that a relay without SMTPUTF8 can take.

    None, if the sender needs it, or an address for replies: a mail without them is another mail.
    """
    if any(needs_smtputf8(each.address) for each in (mail.sender, *mail.reply_to)):
        return []
    recipients = mail.recipients
    return [no for no in numbers if not needs_smtputf8(recipients[no].address.address)]


def _verdict(attempt: SendAttempt, allowed: Sequence[int]) -> tuple[Verdict, timedelta | None]:
    """Return the verdict on the relay; one that throttles every recipient starts its cooldown."""
    found = [attempt.open[number][0] for number in allowed if number in attempt.open]
    if len(found) < len(allowed):
        return "alive", None
    if all(each == "relay_fault" for each in found):
        return "failing", None
    if all(each == "throttled" for each in found):
        return "alive", THROTTLE_COOLDOWN
    return "alive", None


def _domain_cooldowns(attempt: SendAttempt, allowed: Sequence[int]) -> dict[str, timedelta]:
    """Return the domains that throttle while the relay takes mail for others."""
    throttled = {number for number in allowed if attempt.open.get(number, ("",))[0] == "throttled"}
    if not throttled or len(throttled) == len(allowed):
        return {}
    recipients = attempt.mail.recipients
    return {
        domain_of(recipients[number].address.address): THROTTLE_COOLDOWN for number in throttled
    }


def _ended(attempt: SendAttempt) -> Outcome:
    """Return Dead if the mail has failed for anybody, now or in an earlier attempt: a dead mail is
    listed and can be replayed. Suppressed recipients do not count beside others.
    """
    failed = next((row for row in attempt.rows.values() if row.result == "failed"), None)
    if failed is not None:
        return Dead(_shown(failed.code or failed.class_, failed.enhanced, failed.reply))
    if attempt.mail.failure is not None:
        return Dead(attempt.mail.failure)
    results = [row.result for row in attempt.rows.values()]
    sent = attempt.mail.sent + sum(result in ("sent", "captured") for result in results)
    if not sent:
        return Dead("all recipients are suppressed")
    return Done({"sent": sent, "recipients": len(attempt.mail.recipients)})


def _shown(*parts: object) -> str:
    """Return a reply as people know it: code, enhanced code, text."""
    return " ".join(str(each) for each in parts if each)


def _event(mail: LoadedMail, row: ResultRow) -> MailEvent:
    is_sent = row.result == "sent"
    return MailEvent(
        type="mail.sent" if is_sent else "mail.failed",
        mail_id=mail.id,
        recipient_no=row.recipient_no,
        recipient=mail.recipients[row.recipient_no].address.address,
        tags=list(mail.tags),
        reason=None if is_sent else row.class_,
        code=row.code,
        enhanced=row.enhanced,
    )
