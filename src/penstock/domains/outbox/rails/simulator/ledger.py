"""The durable ledger of the simulator: what it booked, in a SQLite file that survives a kill.

It alone says how often an instruction was paid. Every booking is on the disk before it is answered.
"""

import sqlite3
import threading
import time
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from penstock.domains.outbox.rails.simulator.entry import Entry, RequestedPayment, Totals
from penstock.domains.outbox.rails.simulator.order import Later, Order

# A booking survives a crash of the machine, not only of the process.
SETTINGS = ("PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL", "PRAGMA busy_timeout = 10000")
TABLE = """
CREATE TABLE IF NOT EXISTS payment (
    payment_no INTEGER PRIMARY KEY AUTOINCREMENT,
    key TEXT NOT NULL,
    instruction_id TEXT NOT NULL,
    outbox_id TEXT NOT NULL,
    participant_id TEXT NOT NULL,
    sequence_id INTEGER NOT NULL,
    amount TEXT NOT NULL,
    currency TEXT NOT NULL,
    code TEXT NOT NULL,
    is_booked INTEGER NOT NULL,
    visible_at REAL NOT NULL,
    later_code TEXT,
    later_at REAL
) STRICT
"""
INDEX = "CREATE INDEX IF NOT EXISTS payment_by_key ON payment (key, payment_no)"
INSERT = """
INSERT INTO payment (key, instruction_id, outbox_id, participant_id, sequence_id, amount, currency,
    code, is_booked, visible_at, later_code, later_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
FIND = "SELECT * FROM payment WHERE payment_no = ?"
FIND_FIRST = "SELECT * FROM payment WHERE key = ? ORDER BY payment_no LIMIT 1"
FIND_VISIBLE = """
SELECT * FROM payment WHERE key = ? AND visible_at <= ?
ORDER BY is_booked DESC, payment_no DESC LIMIT 1
"""
LIST = "SELECT * FROM payment WHERE payment_no > ? ORDER BY payment_no LIMIT ?"
CHANGE = """
UPDATE payment SET code = ?, later_code = NULL
WHERE key = ? AND is_booked = 1 AND code = 'ACCEPTED'
"""
COUNT = "SELECT count(*), count(DISTINCT instruction_id) FROM payment WHERE is_booked = 1"
REPEATED = """
SELECT instruction_id, count(*) FROM payment
WHERE is_booked = 1
GROUP BY instruction_id
HAVING count(*) > 1
ORDER BY instruction_id
LIMIT 1000
"""


class Ledger:
    """One file. Calls block for the time of a write to the disk; one at a time."""

    def __init__(self, path: Path) -> None:
        # A caller may be cancelled while its thread still writes; the next one waits for it.
        self._mutex = threading.Lock()
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        for statement in (*SETTINGS, TABLE, INDEX):
            self._db.execute(statement)

    def book(self, payment: RequestedPayment, order: Order) -> tuple[Entry, bool]:
        """Record a payment and return its entry, and whether it is new.

        A key that is there already returns its first entry, unless the order allows a repeat.
        """
        with self._mutex:
            return self._book(payment, order)

    def find(self, key: str) -> Entry | None:
        """Return the visible payment with a key: the one that was booked, else the last."""
        with self._mutex:
            row = self._db.execute(FIND_VISIBLE, (key, time.time())).fetchone()
        return None if row is None else _read(row)

    def change(self, key: str, code: Later) -> bool:
        """Settle or return a payment that was accepted; return whether there was one."""
        with self._mutex:
            return self._db.execute(CHANGE, (code, key)).rowcount > 0

    def list(self, *, after: int = 0, limit: int = 1_000) -> list[Entry]:
        """Return a page of payments, the oldest first."""
        with self._mutex:
            return [_read(row) for row in self._db.execute(LIST, (after, limit))]

    def totals(self) -> Totals:
        """Return how often instructions were paid."""
        with self._mutex:
            bookings, instructions = self._db.execute(COUNT).fetchone()
            repeated = dict(self._db.execute(REPEATED).fetchall())
        return Totals(bookings=bookings, instructions=instructions, repeated=repeated)

    def close(self) -> None:
        """Close the file."""
        with self._mutex:
            self._db.close()

    def _book(self, payment: RequestedPayment, order: Order) -> tuple[Entry, bool]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            row = None if order.is_repeatable else self._find(payment.key)
            if row is not None:
                self._db.execute("COMMIT")
                return row, False
            now = time.time()
            cursor = self._db.execute(
                INSERT,
                (
                    payment.key, payment.instruction_id, payment.outbox_id,
                    payment.participant_id, payment.sequence_id, payment.amount, payment.currency,
                    order.code, order.is_booked, now + order.hidden_seconds,
                    order.later, now + order.later_seconds,
                ),
            )  # fmt: skip
            entry = _read(self._db.execute(FIND, (cursor.lastrowid,)).fetchone())
            self._db.execute("COMMIT")
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        return replace(entry, code=order.code), True  # Accepted first, whatever comes later.

    def _find(self, key: str) -> Entry | None:
        row = self._db.execute(FIND_FIRST, (key,)).fetchone()
        return None if row is None else _read(row)


def _read(row: tuple[Any, ...]) -> Entry:
    """Return an entry as it is now: a payment that was accepted changes when its time has come."""
    *columns, _visible_at, later_code, later_at = row
    number, key, instruction_id, outbox_id, participant_id, sequence_id, *money = columns
    amount, currency, code, is_booked = money
    if code == "ACCEPTED" and later_code is not None and time.time() >= later_at:
        code = later_code
    return Entry(
        payment_no=number,
        key=key,
        instruction_id=instruction_id,
        outbox_id=outbox_id,
        participant_id=participant_id,
        sequence_id=sequence_id,
        amount=amount,
        currency=currency,
        code=code,
        is_booked=bool(is_booked),
    )
