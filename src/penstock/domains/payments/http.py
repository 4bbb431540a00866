"""Payments over REST: schedule one or many, show, list, cancel and reschedule."""

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.contract.http import Call, Content, Endpoint, NoParameters, Reply, Stream, endpoint
from penstock.contract.ndjson import NDJSON
from penstock.domains.payments import batch, inspect, operate, wire
from penstock.domains.payments.batcher import PaymentBatcher
from penstock.domains.payments.story import DomainReaders, read_story

REPEATED = {"Idempotency-Hit": "true"}  # The response shows the payment that existed before.
STREAM_BYTES_MAX = 2 * 1024 * 1024 * 1024  # A million payments of 2 KB.


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """The handlers that need the steps of phase A, and the one that reads in other domains."""

    batcher: PaymentBatcher
    readers: DomainReaders

    async def schedule(
        self, call: Call[NoParameters, wire.NewPayment]
    ) -> Reply[wire.ScheduledPayment]:
        """Schedule a payment."""
        draft = self.batcher.payments.prepare(wire.to_new_payment(call.body), who=call.who)
        scheduled = await self.batcher.accept(draft)
        headers = {} if scheduled.is_new else REPEATED
        return Reply(wire.to_wire_scheduled(scheduled), status=202, headers=headers)

    async def schedule_batch(self, call: Call[NoParameters, Stream]) -> Content:
        """Schedule many payments, each for itself."""
        return await batch.answer_array(self.batcher, call.body, who=call.who)

    async def schedule_stream(self, call: Call[NoParameters, Stream]) -> Content:
        """Schedule the payments of a stream, each for itself."""
        return await batch.answer_lines(self.batcher, call.body, who=call.who)

    async def show_payment(self, call: Call[wire.PaymentPath, None]) -> wire.PaymentStory:
        """Show a payment and what happened to it."""
        async with call.connection() as db:
            detail = await inspect.read_payment(db, call.parameters.payment_id)
            return wire.to_wire_story(detail, await read_story(db, detail, self.readers))

    async def reschedule_payment(
        self, call: Call[wire.PaymentPath, wire.Reschedule]
    ) -> wire.PaymentDetail:
        """Give a payment that no worker has claimed another instant."""
        payment_id, given = call.parameters.payment_id, call.body
        steps = self.batcher.payments.steps
        async with call.connection() as db:
            await operate.reschedule(
                db, payment_id, given.execute_at, who=call.who, reason=given.reason, steps=steps
            )
            return wire.to_wire_detail(await inspect.read_payment(db, payment_id))


async def list_payments(call: Call[wire.PaymentQuery, None]) -> wire.PaymentPage:
    """Show a page of payments."""
    query = call.parameters
    only = inspect.PaymentFilter(
        status=query.status,
        item_type=query.item_type,
        participant_id=query.participant_id,
        from_at=query.from_,
        until_at=query.until,
    )
    async with call.connection() as db:
        page = await inspect.list_payments(db, only=only, after=query.after, limit=query.limit)
    return wire.PaymentPage(
        payments=[wire.to_wire_payment(each) for each in page.payments], next=page.next
    )


async def cancel_payment(
    call: Call[wire.PaymentPath, wire.PaymentCancellation | None],
) -> wire.PaymentDetail:
    """Cancel a payment that is not executed, unless a worker has claimed it."""
    payment_id = call.parameters.payment_id
    reason = None if call.body is None else call.body.reason
    async with call.connection() as db:
        await operate.cancel(db, payment_id, who=call.who, reason=reason)
        return wire.to_wire_detail(await inspect.read_payment(db, payment_id))


def endpoints(api: Api) -> Sequence[Endpoint]:
    """Return the endpoints of payments."""
    return (
        endpoint(
            "POST", "/payments", api.schedule, scope="produce", statuses=(202,),
            summary="Schedule a payment; a repeated one is answered with Idempotency-Hit",
            body_bytes_max=batch.PAYMENT_BYTES_MAX,
            keys_are_unique=True,
        ),
        endpoint(
            "POST", "/payments/batch", api.schedule_batch, scope="produce",
            summary="Schedule 1 to 1,000 payments, with one result for each",
            streams={batch.JSON: (list[wire.NewPayment], list[wire.Result])},
            body_bytes_max=batch.BATCH_BYTES_MAX,
        ),
        endpoint(
            "POST", "/payments/stream", api.schedule_stream, scope="produce",
            summary="Schedule up to a million payments, 1,000 at a time",
            streams={NDJSON: (wire.NewPayment, wire.Result)},
            body_bytes_max=STREAM_BYTES_MAX,
        ),
        endpoint(
            "GET", "/payments", list_payments, scope="read",
            summary="List payments by status, item type, participant and time, the last first",
        ),
        endpoint(
            "GET", "/payments/{payment_id}", api.show_payment, scope="read",
            summary="Show a payment: context, item, slot, attempts, instruction, events, mails",
        ),
        endpoint(
            "POST", "/payments/{payment_id}/cancel", cancel_payment, scope="admin",
            summary="Cancel a payment that is not executed, unless a worker has claimed it",
        ),
        endpoint(
            "POST", "/payments/{payment_id}/reschedule", api.reschedule_payment, scope="admin",
            summary="Give a payment that no worker has claimed another instant",
        ),
    )  # fmt: skip
