"""Verify the archive against its chain of seals, and name each row that was changed, removed or
inserted. Only reads, in steps of a few seals, so that no long transaction holds anything back.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date
from itertools import groupby
from typing import Literal
from uuid import UUID

from penstock.base.errors import InvalidInput
from penstock.postgres.pool import Connection, Row
from penstock.postgres.statement import statement

COUNT_SEALED = statement(__package__, "count_sealed.sql")
COUNT_UNSEALED = statement(__package__, "count_unsealed.sql")
READ_HEAD = statement(__package__, "read_head.sql")
READ_SEALS = statement(__package__, "read_seals.sql")
LOOK_UP_ROWS = statement(__package__, "look_up_rows.sql")
COMPARE_ROWS = statement(__package__, "compare_rows.sql")
COMPARE_RESTORED_ROWS = statement(__package__, "compare_restored_rows.sql")
FIND_RESTORED = statement(__package__, "find_restored.sql")
LIST_DROPPED = statement(__package__, "list_dropped.sql")
FIND_FOREIGN_ROWS = statement(__package__, "find_foreign_rows.sql")

SEALS_PER_STEP = 5  # 20,000 rows, in about half a second.
FAULTS_MAX = 1_000  # Nobody reads more; a chain with a missing seal would name each row behind it.
UNSEALED_MAX = 100_000
HASH_HEX_LENGTH = 64
NOWHERE = UUID(int=0)

FaultKind = Literal["changed", "removed", "inserted", "seal"]


@dataclass(frozen=True, slots=True)
class Head:
    """A seal as it is kept elsewhere: its number and its hash in hexadecimal digits."""

    seal_no: int
    hash: str

    def __str__(self) -> str:
        return f"{self.seal_no}:{self.hash}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that is wrong: a row of the archive, or with `seal` the chain itself."""

    fault: FaultKind
    seal_no: int | None = None
    attempt_id: UUID | None = None
    outbox_id: UUID | None = None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedMonth:
    """A month that retention has removed, how many rows it had, and the seal that says so."""

    month: date
    rows: int
    seal_no: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """What was compared, and what is wrong; `faults` ends at FAULTS_MAX.

    `dropped` are the months that nobody can compare any more.
    """

    seals: int
    rows: int
    unsealed: int
    head: Head | None
    dropped: Sequence[DroppedMonth]
    faults: Sequence[Fault]


async def verify(
    db: Connection,
    *,
    kept: Head | None = None,
    may_drop: Collection[date] = (),
    on_progress: Callable[[int], None] | None = None,
) -> Verified:
    """Compare all sealed rows with the archive; `kept` is a head that was noted earlier.

    A month that was dropped since that head is a fault, unless it is one of `may_drop`.
    `on_progress` gets how many rows were compared so far.
    """
    walk = _Walk(kept=kept, may_drop=may_drop)
    while len(walk.faults) < FAULTS_MAX:
        async with db.transaction(isolation="repeatable_read", readonly=True):
            await db.execute(LOOK_UP_ROWS)
            if not await walk.step(db):
                break
        if on_progress is not None:
            on_progress(walk.rows)
    if len(walk.faults) < FAULTS_MAX:
        await walk.finish(db)
    return Verified(
        seals=walk.seals,
        rows=walk.rows,
        unsealed=await db.fetchval(COUNT_UNSEALED, UNSEALED_MAX),
        head=await read_head(db),
        dropped=walk.dropped,
        faults=walk.faults[:FAULTS_MAX],
    )


async def read_head(db: Connection) -> Head | None:
    """Return the last seal; None if nothing is sealed yet."""
    row = await db.fetchrow(READ_HEAD)
    return None if row is None else Head(row["seal_no"], row["hash"].hex())


async def count_sealed(db: Connection) -> int:
    """Return how many rows a verification compares."""
    return int(await db.fetchval(COUNT_SEALED))


def parse_head(text: str, *, field: str) -> Head:
    """Return a head from its text; raises InvalidInput with the name of the field."""
    number, _, digits = text.strip().partition(":")
    is_hash = len(digits) == HASH_HEX_LENGTH and set(digits) <= set("0123456789abcdef")
    if not (number.isascii() and number.isdigit() and int(number) > 0 and is_hash):
        raise InvalidInput(field, "is not a head such as 17:9f86…, as --head prints it")
    return Head(int(number), digits)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the rows of a seal end: rows behind it belong to the next one."""

    era: int
    xid: str = "0"
    attempt_id: UUID = NOWHERE


@dataclass(slots=True)
class _Walk:
    """The way along the chain: the seal before, what was compared, and what is wrong."""

    kept: Head | None
    may_drop: Collection[date] = ()
    dropped: list[DroppedMonth] = field(default_factory=list[DroppedMonth])
    seals: int = 0
    rows: int = 0
    faults: list[Fault] = field(default_factory=list[Fault])
    _hash: bytes | None = None
    _place: _Place = _Place(0)

    async def step(self, db: Connection) -> bool:
        """Compare the next seals and their rows; return False at the end of the chain."""
        found = await db.fetch(READ_SEALS, self.seals, SEALS_PER_STEP)
        for seal in found:
            self.faults += self._faults_of_seal(seal)
            self.seals, self._hash = seal["seal_no"], seal["hash"]
        for (kind, era), group in groupby(found, key=lambda seal: (_ranged(seal), seal["era"])):
            seals = list(group)
            if kind:
                await self._compare_range(db, seals, era=era)
            else:
                await self._compare_each(db, seals)
            self.rows += sum(seal["row_count"] for seal in seals if _has_rows(seal))
        return bool(found)

    async def finish(self, db: Connection) -> None:
        """Look for rows outside of the chain, dropped months, and the head that was kept."""
        for row in await db.fetch(LIST_DROPPED):
            self.dropped.append(
                DroppedMonth(month=row["month"], rows=row["row_count"], seal_no=row["seal_no"])
            )
            self.faults += self._faults_of_drop(row)
        foreign = await db.fetch(FIND_FOREIGN_ROWS, FAULTS_MAX)
        self.faults += [_fault(row, "inserted") for row in foreign]
        if self.kept is not None and self.kept.seal_no > self.seals:
            reason = f"the chain ends at {self.seals}, before the seal that was kept"
            self.faults.append(Fault(fault="seal", seal_no=self.kept.seal_no, reason=reason))

    def _faults_of_drop(self, row: Row) -> Iterator[Fault]:
        """Compare what the chain says about a dropped month with what is there.

        Whoever can write can append such an entry, so that its rows are not missed.
        """
        number, month = row["seal_no"], f"{row['month']:%Y-%m}"
        if row["is_present"]:
            reason = f"says that {month} was dropped, and the month is still there"
            yield Fault(fault="seal", seal_no=number, reason=reason)
        if not row["is_count_right"]:
            reason = f"says that {month} was dropped, with another number of rows than it had"
            yield Fault(fault="seal", seal_no=number, reason=reason)
        is_since = self.kept is not None and number > self.kept.seal_no
        if is_since and row["month"] not in self.may_drop:
            reason = f"{month} was dropped after the seal that was kept"
            yield Fault(fault="seal", seal_no=number, reason=reason)

    def _faults_of_seal(self, seal: Row) -> Iterator[Fault]:
        number = seal["seal_no"]
        if number != self.seals + 1:
            missing = f"the seals {self.seals + 1} to {number - 1} are missing"
            yield Fault(fault="seal", seal_no=number, reason=missing)
        elif self._hash is not None and seal["previous_hash"] != self._hash:
            yield Fault(fault="seal", seal_no=number, reason="does not follow the seal before it")
        if not (seal["is_hash_right"] and seal["are_rows_right"]):
            yield Fault(fault="seal", seal_no=number, reason="its hash does not agree with it")
        if seal["kind"] != "dropped" and seal["is_whole"] == seal["is_dropped"]:
            reason = (
                "its month was removed by retention, and its rows are listed"
                if seal["is_whole"]
                else "its rows are not listed, and retention has not removed its month"
            )
            yield Fault(fault="seal", seal_no=number, reason=reason)
        kept = self.kept
        if kept is not None and kept.seal_no == number and kept.hash != seal["hash"].hex():
            yield Fault(fault="seal", seal_no=number, reason="is not the seal that was kept")

    async def _compare_range(self, db: Connection, seals: Sequence[Row], *, era: int) -> None:
        """Compare a stretch of the archive with the consecutive seals that cover it."""
        start = self._place if self._place.era == era else _Place(era)
        last = seals[-1]
        self._place = end = _Place(era, last["last_xid"], last["last_attempt_id"])
        rows = await db.fetch(
            COMPARE_ROWS,
            seals[0]["seal_no"], last["seal_no"],
            era, start.xid, start.attempt_id, end.xid, end.attempt_id,
            FAULTS_MAX,
        )  # fmt: skip
        known = await self._restored(db, [row for row in rows if row["fault"] == "inserted"])
        self.faults += [
            _fault(row, row["fault"], seal_no=row["seal_no"])
            for row in rows
            if row["attempt_id"] not in known
        ]

    async def _restored(self, db: Connection, rows: Sequence[Row]) -> set[UUID]:
        """Return the rows that have a seal outside of the order, since a restore."""
        if not rows:
            return set()
        found = await db.fetch(FIND_RESTORED, [row["attempt_id"] for row in rows])
        return {row["id"] for row in found}

    async def _compare_each(self, db: Connection, seals: Sequence[Row]) -> None:
        """Compare the rows that seals name one by one."""
        for seal in seals:
            number = seal["seal_no"]
            for row in await db.fetch(COMPARE_RESTORED_ROWS, number, FAULTS_MAX):
                self.faults.append(_fault(row, row["fault"], seal_no=number))


def _ranged(seal: Row) -> bool:
    """Return whether a seal covers what is between the seal before and its own place.

    One that says that a month was removed covers nothing: its place is that of the seal before.
    """
    return seal["kind"] != "restored"


def _has_rows(seal: Row) -> bool:
    return seal["kind"] != "dropped" and bool(seal["is_whole"])


REASONS: dict[FaultKind, str] = {
    "changed": "the row, or its instruction, is not as it was sealed",
    "removed": "the row was sealed, and is not in the archive",
    "inserted": "the row is among sealed rows, and has no seal",
}


def _fault(row: Row, kind: FaultKind, *, seal_no: int | None = None) -> Fault:
    return Fault(
        fault=kind,
        seal_no=seal_no,
        attempt_id=row["attempt_id"],
        outbox_id=row["outbox_id"],
        reason=REASONS[kind],
    )
