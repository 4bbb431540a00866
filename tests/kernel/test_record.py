"""A domain's own record of settled attempts is written with the settling, or not at all."""

from collections.abc import Sequence
from datetime import timedelta

import pytest

from penstock.base.log import get_logger
from penstock.base.meter import Meter
from penstock.kernel.item import Dead, Done, Ending, Hold, Retry, Returned, SettledAttempt, Snooze
from penstock.kernel.lane import Lane
from penstock.kernel.settle import Ended, Settled, settle
from penstock.kernel.sweep import sweep
from penstock.postgres.pool import Connection, Pool
from tests.kernel.scene import HOUR, NOON, outcomes_of, put, state_of, take


class Archive:
    """Collects what it is given; fails while `is_broken`."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.attempts: list[SettledAttempt] = []
        self.is_broken = False

    async def __call__(self, _: Connection, token: int, attempts: Sequence[SettledAttempt]) -> None:
        if self.is_broken:
            raise OSError("the archive is away")
        self.tokens.append(token)
        self.attempts += attempts


@pytest.mark.parametrize(
    ("ending", "outcome"),
    [
        (Done(), "done"),
        (Retry("busy"), "retry"),
        (Snooze(timedelta(seconds=1)), "snooze"),
        (Hold("no answer"), "hold"),
        (Dead("refused"), "dead"),
        (Retry("busy", attempts_max=1), "dead"),
    ],
)
async def test_a_domain_records_what_the_policy_made_of_an_ending(
    ending: Ending, *, outcome: str, db: Connection, lane: Lane
) -> None:
    """The archive of a domain must not say that an attempt is repeated when it was the last."""
    archive = Archive()
    item_id = await put(db, lane)

    await _settle(db, lane, ending, archive=archive)

    (attempt,) = archive.attempts
    assert (attempt.item_id, attempt.attempt, attempt.claimed_at) == (item_id, 1, NOON)
    assert (attempt.ending, attempt.outcome) == (ending, outcome)


async def test_an_item_that_was_returned_unstarted_is_not_recorded(
    db: Connection, lane: Lane
) -> None:
    """The domain learns that the lease was settled nevertheless."""
    archive = Archive()
    await put(db, lane)

    await _settle(db, lane, Returned(), archive=archive)

    assert archive.attempts == []
    assert len(archive.tokens) == 1


async def test_nothing_is_settled_when_the_record_fails(db: Connection, lane: Lane) -> None:
    """An attempt without its archive row, or the other way round, would be a gap in the books."""
    archive = Archive()
    archive.is_broken = True
    item_id = await put(db, lane)

    with pytest.raises(OSError, match="away"):
        await _settle(db, lane, Done(), archive=archive)

    assert await outcomes_of(db, item_id) == []
    assert await state_of(db, item_id) == "leased"


async def test_a_result_after_the_lease_was_lost_is_not_recorded(
    pool: Pool, *, db: Connection, lane: Lane
) -> None:
    archive = Archive()
    await put(db, lane)
    lease = await take(db, lane)
    await sweep(pool, meter=Meter(), log=get_logger(), now=NOON + HOUR)

    ended = [Ended(claimed, Done(), 5) for claimed in lease.items]
    settled = await settle(
        db, lane, lease, ended=ended, closes=True, record_settled=archive, now=NOON + HOUR
    )

    assert settled is None
    assert archive.attempts == []


async def _settle(
    db: Connection, lane: Lane, ending: Ending, *, archive: Archive
) -> Settled | None:
    lease = await take(db, lane)
    ended = [Ended(claimed, ending, 5) for claimed in lease.items]
    async with db.transaction():
        return await settle(
            db, lane, lease, ended=ended, closes=True, record_settled=archive, now=NOON
        )
