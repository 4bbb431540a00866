"""Connect payments to the outbox, which executes them, to webhooks and mail, and to slots.

Functions go in one direction: payments send instructions to the outbox with `send_instructions`,
and the outbox announces what became of them to `on_outbox_events`, each in the transaction of the
caller.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from penstock.base.errors import InvalidInput, MissingExtra
from penstock.base.log import Logger
from penstock.base.settings import Settings, section
from penstock.compose import mail
from penstock.compose.events import runs, to_event
from penstock.compose.kafka import KafkaSettings, make_consumer
from penstock.compose.payment_story import make_readers
from penstock.compose.temporal import TemporalSettings, check_temporal, make_start
from penstock.compose.temporal import is_installed as is_temporal_installed
from penstock.contract import Domain, Finding, Resources, Runtime, Service
from penstock.domains.outbox.enqueue import (
    AcceptedInstruction,
    NewInstruction,
    PreparedInstruction,
    prepare,
    send_prepared,
)
from penstock.domains.outbox.event import Announce, OutboxEvent
from penstock.domains.payments.batcher import PaymentBatcher
from penstock.domains.payments.commands import Composed, payment_group
from penstock.domains.payments.domain import PAYMENTS
from penstock.domains.payments.engine import HandlePayments
from penstock.domains.payments.execute import (
    BuiltInEngine,
    Execute,
    Executed,
    Execution,
    PostProcess,
    Refused,
    post_process_nothing,
)
from penstock.domains.payments.kept_results import apply_or_keep
from penstock.domains.payments.loader import ON_TEMPORAL, Engine
from penstock.domains.payments.messages import accept_messages
from penstock.domains.payments.notify import (
    MailNotification,
    Notification,
    Notifier,
    SendMails,
    has_table,
    key_prefix,
    where_table_exists,
)
from penstock.domains.payments.payment import Draft, NewPayment
from penstock.domains.payments.results import (
    PaymentResult,
    PaymentResults,
    ResultStatus,
)
from penstock.domains.payments.schedule import Payments
from penstock.domains.payments.settings import PaymentSettings
from penstock.domains.payments.steps import STEPS, Steps
from penstock.domains.payments.temporal.engine import TemporalEngine
from penstock.domains.payments.topics import PaymentTopics
from penstock.domains.webhooks.accept import accept_events
from penstock.integrations.kafka import metrics as kafka_metrics
from penstock.postgres.pool import Connection

# Tables that are there if the database has the domain, whatever this process runs.
EVENTS = "penstock.webhook_event"
MAILS = "penstock.mail"

# What an event of the outbox means for the payment. What the rail has only accepted goes on.
STATUS_OF: dict[str, ResultStatus] = {
    "outbox.dispatched": "SETTLED",
    "outbox.settled": "SETTLED",
    "outbox.failed": "REJECTED",
    "outbox.returned": "RETURNED",
    "outbox.unknown": "UNKNOWN",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionSteps:
    """What phase B does with payments, on every engine."""

    execute: Execute
    post_process: PostProcess = post_process_nothing


def build(
    resources: Resources,
    *,
    temporal: TemporalSettings | None = None,
    steps: Steps = STEPS,
    execute: Execute | None = None,
    post_process: PostProcess = post_process_nothing,
) -> Runtime:
    """Build the domain on the other domains of this process, and on Temporal where it can be.

    `steps` are those of phase A, `execute` and `post_process` those of phase B; without `execute`,
    the outbox pays. They are replaced here alone: what schedules payments in this process takes
    them from the `Payments` that the app then offers, and a worker of Temporal takes those of phase
    B from its `ExecutionSteps`.
    """
    from penstock.domains.payments.runtime import build as build_domain  # noqa: PLC0415

    notifier = make_notifier(resources.settings, log=resources.log)
    execution = ExecutionSteps(execute=execute or send_instructions, post_process=post_process)
    built_in = BuiltInEngine(
        pool=resources.pool,
        execute=execution.execute,
        notify=notifier,
        post_process=execution.post_process,
    )
    runtime = build_domain(
        resources,
        notify=notifier,
        engines=_engines(resources, built_in, temporal=temporal),
        steps=make_steps(steps),
        readers=make_readers(resources.settings),
    )
    return replace(runtime, apis=[*runtime.apis, execution])


def make_steps(steps: Steps = STEPS) -> Steps:
    """Return the steps of phase A, where `validate` also refuses an address that mail refuses.

    Otherwise the payment would be executed, and its mails be lost. Only the extra can check one;
    without it, `validate` alone decides.
    """
    if not mail.is_installed():
        return steps
    from penstock.domains.mail.address import parse_address  # noqa: PLC0415  An extra.

    def validate(payment: NewPayment) -> Draft:
        draft = steps.validate(payment)
        address = draft.payment.notify.mail
        if address is not None:
            parse_address(address, field="notify.mail")
        return draft

    return replace(steps, validate=validate)


def _engines(
    resources: Resources, built_in: BuiltInEngine, *, temporal: TemporalSettings | None
) -> dict[Engine, HandlePayments]:
    """Return the engines by name; those that start workflows need the extra.

    A batch that was claimed just before its item type got a schedule is started as well.
    """
    engines: dict[Engine, HandlePayments] = {"builtin": built_in.handle_many}
    if is_temporal_installed():
        start = make_start(temporal or resources.section(TemporalSettings))
        engine = TemporalEngine(
            pool=resources.pool, clock=resources.clock, start=start, log=resources.log
        )
        engines |= dict.fromkeys(ON_TEMPORAL, engine.handle_many)
    return engines


async def send_instructions(
    db: Connection, executions: Sequence[Execution]
) -> list[Executed | Refused]:
    """Instruct the outbox to pay, in one statement; an instruction that it refuses has a reason.

    Who scheduled a payment has produced its instruction, and cannot approve it.
    """
    answers: dict[int, Executed | Refused] = {}
    prepared: dict[int, PreparedInstruction] = {}
    for place, execution in enumerate(executions):
        try:
            prepared[place] = prepare(
                _instruction(execution), who=execution.created_by, outbox_id=execution.outbox_id
            )
        except InvalidInput as refused:
            answers[place] = Refused(str(refused))
    for place, answer in zip(prepared, await send_prepared(db, [*prepared.values()]), strict=True):
        is_accepted = isinstance(answer, AcceptedInstruction)
        answers[place] = Executed(answer.outbox_id) if is_accepted else Refused(str(answer))
    return [answers[place] for place in range(len(executions))]


def _instruction(execution: Execution) -> NewInstruction:
    """Return the instruction of a payment: its id is the instruction's id and key, for ever."""
    payment_id, context = execution.payment.payment_id, execution.context
    return NewInstruction(
        instruction_id=payment_id,
        participant_id=context.participant_id,
        idempotency_key=payment_id,
        rail_type=context.rail_type,
        payload={
            "amount": context.amount,
            "currency": context.currency,
            "destination": context.creditor,
            "debtor": context.debtor,
        },
    )


def make_listener(chosen: Settings, *, log: Logger) -> Announce:
    """Return what moves payments as the outbox announces their instructions."""
    results = PaymentResults(notify=make_notifier(chosen, log=log), log=log)

    async def on_outbox_events(db: Connection, events: Sequence[OutboxEvent]) -> None:
        await apply_or_keep(db, [_result(each) for each in events], by=results, log=log)

    return on_outbox_events


def _result(event: OutboxEvent) -> PaymentResult:
    return PaymentResult(
        payment_id=event.instruction_id,
        outbox_id=event.outbox_id,
        status="PROCESSING" if event.is_pending else STATUS_OF[event.type],
        rail_reference=event.rail_reference,
        reason=_reason(event),
    )


def _reason(event: OutboxEvent) -> str | None:
    """Return the codes of a result that is not a success."""
    if event.type in {"outbox.dispatched", "outbox.settled"}:
        return None
    return " ".join(each for each in (event.error_code, event.rail_code) if each) or None


def make_notifier(chosen: Settings, *, log: Logger) -> Notifier:
    """Return the notifier of payments.

    A domain that this process does not run takes notifications if its tables are there: other
    processes send them.
    """
    runs_webhooks, runs_mail = runs(chosen, "webhooks"), mail.is_used(chosen)
    send_mails = _mail_sender(section(PaymentSettings)) if mail.is_installed() else _refuse_mails
    return Notifier(
        send_events=_send_events if runs_webhooks else where_table_exists(EVENTS, _send_events),
        send_mails=send_mails if runs_mail else where_table_exists(MAILS, send_mails),
        log=log,
    )


async def check_notifications(resources: Resources) -> Finding:
    """Check that this process can accept the mails about payments, if the database has mails."""
    async with resources.pool.acquire() as db:
        has_mails = await has_table(db, MAILS)
    if has_mails and not mail.is_installed():
        reason = f"mails are lost if this installation moves their payments: {_missing_mail()}"
        return Finding("warn", "payment notifications", reason)
    return Finding("ok", "payment notifications", "events and mails" if has_mails else "events")


async def _send_events(db: Connection, events: Sequence[Notification]) -> None:
    await accept_events(db, [to_event(each.event_type, each, event_id=each.key) for each in events])


async def _refuse_mails(_db: Connection, _mails: Sequence[MailNotification]) -> None:
    """Refuse mails, which the notifier logs: only the extra can check and write one."""
    raise _missing_mail()


def _missing_mail() -> MissingExtra:
    return MissingExtra("mail", "mails about payments")


def _mail_sender(chosen: PaymentSettings) -> SendMails:
    from penstock.domains.mail.enqueue import send_prepared as send  # noqa: PLC0415  An extra.
    from penstock.domains.mail.new_mail import NewMail  # noqa: PLC0415
    from penstock.domains.mail.new_mail import prepare as prepare_mail  # noqa: PLC0415

    async def send_mails(db: Connection, mails: Sequence[MailNotification]) -> None:
        await send(
            db,
            [
                prepare_mail(
                    NewMail(
                        sender=chosen.payments_mail_from,
                        to=[each.to],
                        subject=each.subject,
                        tags=[key_prefix(each.about.payment_id)],
                        text=each.text,
                        key=each.about.key,
                    )
                )
                for each in mails
            ],
        )

    return send_mails


def payment_consumer(resources: Resources, payments: Payments) -> Service:
    """Return the service that schedules payments from Kafka; raises BadSetting or MissingExtra."""
    chosen = resources.section(PaymentTopics)
    return make_consumer(
        resources,
        partial(accept_messages, PaymentBatcher(payments)),
        topic=chosen.payments_kafka_topic,
        group=chosen.payments_kafka_group,
        dead_topic=chosen.payments_kafka_dead_topic,
    )


DOMAIN: Domain = replace(
    PAYMENTS,
    build=build,
    settings=(*PAYMENTS.settings, TemporalSettings, PaymentTopics, KafkaSettings),
    metrics=(*PAYMENTS.metrics, *kafka_metrics.METRICS),
    checks=(*PAYMENTS.checks, check_notifications, check_temporal),
    commands=(payment_group(Composed(make_readers=make_readers, make_steps=make_steps)),),
)
