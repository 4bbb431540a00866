"""Batch concurrent `POST /outbox/instructions` requests into one statement."""

from collections.abc import Sequence
from itertools import groupby

from penstock.base.coalesce import Coalescer
from penstock.base.errors import PenstockError
from penstock.contract.http import ACQUIRE_TIMEOUT
from penstock.domains.outbox.enqueue import (
    AcceptedInstruction,
    AcceptResult,
    PreparedInstruction,
    send_prepared,
)
from penstock.postgres.pool import Pool

BATCH_MAX = 500  # Instructions in one statement: their participants wait for its commit.


class InstructionBatcher:
    """Where instructions come in over REST."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._queue: Coalescer[PreparedInstruction, AcceptResult] = Coalescer(
            self.accept_many, batch_max=BATCH_MAX
        )

    async def accept(self, prepared: PreparedInstruction) -> AcceptedInstruction:
        """Return once the instruction is committed; raises InstructionConflict."""
        answer = await self._queue.ask(prepared)
        assert isinstance(answer, AcceptedInstruction), "a conflict is raised"
        return answer

    async def accept_many(
        self, prepared: Sequence[PreparedInstruction]
    ) -> Sequence[AcceptResult | Exception]:
        """Accept instructions in one transaction for each sender, in their order."""
        answers: dict[int, AcceptResult | Exception] = {}
        places = sorted(range(len(prepared)), key=lambda place: prepared[place].who)
        for _, group in groupby(places, key=lambda place: prepared[place].who):
            listed = list(group)
            found = await self._accept([prepared[place] for place in listed])
            answers |= dict(zip(listed, found, strict=True))
        return [answers[place] for place in range(len(prepared))]

    async def _accept(
        self, prepared: Sequence[PreparedInstruction]
    ) -> Sequence[AcceptResult | Exception]:
        """Accept instructions together; if the database refuses one, each for itself."""
        async with self._pool.acquire(timeout=ACQUIRE_TIMEOUT.total_seconds()) as db:
            try:
                async with db.transaction():
                    return await send_prepared(db, prepared)
            except PenstockError as refused:
                if len(prepared) == 1:
                    return [refused]
        return [answer for each in prepared for answer in await self._accept([each])]
