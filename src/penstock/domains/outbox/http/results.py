"""Results of rails and decisions of people over REST."""

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.base.clock import Clock
from penstock.contract.http import Call, Endpoint, NoParameters, Stream, endpoint
from penstock.contract.paging import read_id
from penstock.domains.outbox.reconcile import wire
from penstock.domains.outbox.reconcile.resolve import (
    Decision,
    Resolver,
    UnknownFilter,
    check_for_many,
    count_unknown,
)
from penstock.domains.outbox.reconcile.results import Report, Results
from penstock.domains.outbox.wire import InstructionPath
from penstock.postgres.clock import read_instant

JSON = "application/json"
SIGNATURE = "penstock-signature"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultApi:
    """The handlers, with what they share."""

    results: Results
    resolver: Resolver
    clock: Clock

    async def take(self, call: Call[NoParameters, Stream]) -> wire.TakenResult:
        """Take what a rail reports; its signature is the authentication."""
        body = bytearray()
        async for chunk in call.body.chunks:
            body += chunk
        async with call.connection() as db:
            # An API process makes no claim, from which a worker knows the database's clock.
            now = await read_instant(db, self.clock)
            taken = await self.results.take(db, bytes(body), call.headers.get(SIGNATURE), now=now)
        return wire.TakenResult(
            outbox_id=taken.outbox_id, status=taken.status, outcome=taken.outcome
        )

    async def resolve(
        self, call: Call[InstructionPath, wire.ResolutionInput]
    ) -> wire.ResolvedInstruction:
        """Decide about an instruction in doubt."""
        given = call.body
        decision = Decision(
            resolution=given.resolution,
            who=call.who,
            reason=given.reason,
            reference=given.reference,
        )
        outbox_id = call.parameters.outbox_id
        async with call.connection() as db:
            await self.resolver.resolve(db, outbox_id, decision, attempt=given.attempt)
        return wire.ResolvedInstruction(outbox_id=outbox_id, resolution=given.resolution)

    async def resolve_many(
        self, call: Call[NoParameters, wire.ResolutionOfMany]
    ) -> wire.ResolvedMany:
        """Decide about the instructions in doubt that match."""
        given = call.body
        check_for_many(given.resolution)
        decision = Decision(resolution=given.resolution, who=call.who, reason=given.reason)
        async with call.connection() as db:
            before = given.before
            if given.dry_run and before is None:
                before = await read_instant(db, self.clock)
            only = UnknownFilter(
                rail_type=given.rail_type, participant_id=given.participant_id, before=before
            )
            if given.dry_run:
                matched = await count_unknown(db, only)
                return wire.ResolvedMany(
                    matched=matched, changed=0, unchanged=0, next=None, before=before
                )
            page = await self.resolver.resolve_page(
                db, only, decision, after=read_id(given.after) or 0
            )
        return wire.ResolvedMany(
            matched=page.changed + page.unchanged,
            changed=page.changed,
            unchanged=page.unchanged,
            next=None if page.last_id is None else str(page.last_id),
            before=before,
        )


def endpoints(api: ResultApi) -> Sequence[Endpoint]:
    """Return the table of endpoints."""
    return (
        endpoint(
            "POST", "/outbox/results", api.take, scope=None, takes_headers=("Penstock-Signature",),
            streams={JSON: (Report, wire.TakenResult)}, summary="Take a signed report of a rail",
        ),
        endpoint(
            "POST", "/outbox/instructions/{outbox_id}/resolve", api.resolve, scope="admin",
            summary="Decide about an instruction that may have been paid",
        ),
        endpoint(
            "POST", "/outbox/instructions/resolve", api.resolve_many, scope="admin",
            summary="Decide about all instructions that may have been paid and match",
        ),
    )  # fmt: skip
