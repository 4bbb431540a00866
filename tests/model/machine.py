"""Drives the kernel and its model with the same calls, and compares them after each."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Literal, TypeVar, get_args

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.base.errors import PenstockError
from penstock.kernel import operate, promote, replay, sweep
from penstock.kernel.claim import Claimed, Cursor, Lease, claim
from penstock.kernel.enqueue import enqueue, enqueue_many
from penstock.kernel.fence import MARK_STARTED
from penstock.kernel.guard import Verb
from penstock.kernel.inspect import balance, read_item
from penstock.kernel.item import Dead, Done, Hold, ItemId, NewItem, Retry, Returned, Snooze
from penstock.kernel.item import Ending as KernelEnding
from penstock.kernel.lane import create_lane, pause_lane, read_lane, resume_lane, set_lane
from penstock.kernel.settle import Ended, settle
from penstock.kernel.worker import EXTEND_LEASES
from penstock.postgres.pool import Connection, Transaction
from tests.model import model
from tests.model.model import Ending, Item, Model, Refused

T = TypeVar("T")

START = datetime(2030, 1, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
WHO = "model"
BY_HAND = "by hand"
OWNER = "model"  # Of the line, in half of the examples: it guards every verb against others.
GUARDS = dict.fromkeys(get_args(Verb), "use the model")

# Few names, so that they meet often.
LANES = ["line", "loose"]
some_lane = st.sampled_from(["line", "line", "line", "loose"])
some_key = st.sampled_from([None, None, "k1", "k2"])
some_order_key = st.sampled_from([None, "a", "a", "b"])
some_payload = st.sampled_from([1, 1, 1, 2])
some_wait = st.sampled_from([0, 0, 0, 1, 5, 40]).map(lambda seconds: seconds * SECOND)
some_deadline = st.sampled_from([None, None, None, 3, 20, 90])
some_number = st.integers(min_value=0, max_value=7)  # Which of what there is, counted round.
some_ending = st.sampled_from(
    [
        Ending(outcome="done"),
        Ending(outcome="retry"),
        Ending(outcome="retry", after=3 * SECOND),
        Ending(outcome="snooze", after=2 * SECOND),
        Ending(outcome="hold"),
        Ending(outcome="dead"),
        Ending(outcome="dead"),
        Ending(outcome="returned"),
    ]
)
some_endings = st.lists(some_ending, min_size=1, max_size=4)

# One row per place of an item: two rows mean that it is in two places.
PLACES = """
SELECT id, 'ready' AS state, due_at, attempt, forgiven, NULL AS reason FROM penstock.ready
UNION ALL SELECT id, 'parked', due_at, attempt, forgiven, NULL FROM penstock.parked
UNION ALL SELECT u.id, 'leased', NULL, u.attempt, u.forgiven, NULL
    FROM penstock.lease, unnest(item_ids, attempts, forgiven) AS u (id, attempt, forgiven)
UNION ALL SELECT id, 'held', NULL, attempt, forgiven, reason FROM penstock.held
UNION ALL SELECT id, 'dead', NULL, attempt, forgiven, reason FROM penstock.dead
UNION ALL SELECT id, 'cancelled', NULL, NULL, NULL, NULL FROM penstock.cancelled
UNION ALL SELECT item_id, 'done', NULL, attempt, NULL, NULL
    FROM penstock.attempt WHERE outcome = 'done'
"""
LOCATED = """
SELECT id, CASE state WHEN 'scheduled' THEN 'ready' ELSE state END AS state
FROM penstock.locate(ARRAY(SELECT id FROM penstock.item))
"""
ATTEMPTS = """
SELECT item_id, attempt, outcome, token, claimed_at, settled_at, retry_at, reason
FROM penstock.attempt
ORDER BY item_id, attempt
"""
# Before the first lease, the sequence has not been called.
LAST_TOKEN = """
SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM penstock.lease_token_seq
"""
LATE = "SELECT item_id, token FROM penstock.late_result"
CROWDED_KEYS = """
SELECT lane_id, order_key, count(*)
FROM (
    SELECT id FROM penstock.ready
    UNION ALL SELECT unnest(item_ids) FROM penstock.lease
    UNION ALL SELECT id FROM penstock.held
) AS head
JOIN penstock.item USING (id)
JOIN penstock.lane USING (lane_id)
WHERE ordering = 'per_key' AND order_key IS NOT NULL
GROUP BY lane_id, order_key
HAVING count(*) > 1
"""
TAKEN_LINES = """
SELECT name, order_key, blocked_by, vacated_key.lane_id IS NOT NULL AS is_vacated
FROM penstock.active_key
FULL JOIN penstock.vacated_key USING (lane_id, order_key)
JOIN penstock.lane USING (lane_id)
"""
# A key has one item out at a time, so its tokens are in the order in which its items were done.
DONE = """
SELECT lane.name, order_key, array_agg(item_id ORDER BY token) AS ids
FROM penstock.attempt
JOIN penstock.item ON item.id = item_id
JOIN penstock.lane ON lane.lane_id = item.lane_id
WHERE outcome = 'done' AND order_key IS NOT NULL AND ordering = 'per_key'
GROUP BY 1, 2
"""
CLEAR = """
DO $$ BEGIN
    EXECUTE (
        SELECT 'TRUNCATE ' || string_agg(oid::regclass::text, ', ') || ' RESTART IDENTITY'
        FROM pg_class
        WHERE relnamespace = 'penstock'::regnamespace AND relkind IN ('r', 'p')
            AND NOT relispartition AND relname NOT LIKE '%migration%'
            -- Append-only tables refuse it, by a trigger with this bit, and nothing is in them.
            AND NOT EXISTS (
                SELECT FROM pg_trigger WHERE tgrelid = pg_class.oid AND tgtype & 32 <> 0));
END $$
"""


@dataclass(slots=True)
class World:
    """What outlives one example: a loop and two sessions on one database."""

    runner: asyncio.Runner
    db: Connection
    producer: Connection

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(call)


@dataclass(slots=True)
class Worker:
    """A worker that claimed something: what it thinks is left, and what it has said so far."""

    lane: str
    lease: Lease
    left: list[Claimed]
    said: list[tuple[dict[int, Ending], bool]] = field(default_factory=list)


class KernelMachine(RuleBasedStateMachine):
    """Each rule calls the kernel and the model alike; the invariants compare all they know."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        self.db = world.db
        self.now = START
        self.model = Model()
        self.workers: list[Worker] = []
        self.pending: tuple[Transaction, Item] | None = None
        self.attempts: dict[tuple[int, int], tuple[Any, ...]] = {}

    def teardown(self) -> None:
        if self.pending is not None:
            self.world.run(self.pending[0].rollback())
        self.world.run(self.db.execute(CLEAR))

    def call(self, wanted: Refused | None, work: Coroutine[Any, Any, Any]) -> Any:
        """Await the kernel; if the model refused, the kernel must refuse for the same reason."""
        answer, raised = None, None
        try:
            answer = self.world.run(work)
        except PenstockError as refused:
            raised = type(refused).__name__
        assert raised == (None if wanted is None else str(wanted))
        return answer

    # ------------------------------------------------------------------------------- lanes

    @initialize(
        on_dead_head=st.sampled_from(["block", "park", "skip"]),
        max_attempts=st.integers(1, 3),
        on_lost=st.sampled_from(["retry", "hold"]),
        lease=st.sampled_from([5, 30]),
        order_keys=st.lists(st.sampled_from("ab"), min_size=2, max_size=6),
        is_owned=st.booleans(),
    )
    def make_lanes(
        self,
        on_dead_head: str,
        max_attempts: int,
        *,
        on_lost: str,
        lease: int,
        order_keys: list[str],
        is_owned: bool,
    ) -> None:
        """Start with a line that has somebody in it: most of what can go wrong needs one."""
        for name in LANES:
            lane = model.Lane(
                name=name,
                is_ordered=name == "line",
                on_dead_head=on_dead_head,
                max_attempts=max_attempts,
                lease=lease * SECOND,
                on_lost=on_lost,
                is_owned=is_owned and name == "line",
            )
            self.model.lanes[name] = lane
            self.world.run(
                create_lane(
                    self.db,
                    name,
                    who=WHO,
                    owner=OWNER if lane.is_owned else None,
                    guards=GUARDS if lane.is_owned else None,
                    ordering="per_key" if lane.is_ordered else "none",
                    on_dead_head=lane.on_dead_head,
                    max_attempts=max_attempts,
                    lease=lane.lease,
                    on_lost=on_lost,
                    backoff_base=model.BACKOFF_BASE,
                    backoff_multiplier=model.BACKOFF_MULTIPLIER,
                    backoff_cap=model.BACKOFF_CAP,
                    backoff_jitter=0,
                )
            )
        self.enqueue_some("line", [(1, None, key, 0 * SECOND, None) for key in order_keys])

    @rule(
        name=some_lane, max_attempts=st.integers(1, 4), on_lost=st.sampled_from(["retry", "hold"])
    )
    def pause_and_change_or_resume(self, name: str, max_attempts: int, on_lost: str) -> None:
        lane = self.model.lanes[name]
        if lane.enabled:
            self.world.run(pause_lane(self.db, name, who=WHO))
            self.world.run(
                set_lane(self.db, name, who=WHO, max_attempts=max_attempts, on_lost=on_lost)
            )
            lane.max_attempts, lane.on_lost = max_attempts, on_lost
        else:
            self.world.run(resume_lane(self.db, name, who=WHO))
        lane.enabled = not lane.enabled

    # ----------------------------------------------------------------------------- enqueue

    def make(
        self,
        lane: str,
        *,
        payload: int,
        key: str | None,
        order_key: str | None,
        wait: timedelta,
        deadline: int | None,
    ) -> Item:
        """Return an item without an id; a deadline counts from its due instant."""
        due_at = self.now + wait
        return Item(
            id=0,
            lane=lane,
            payload=payload,
            key=key,
            order_key=order_key,
            due_at=due_at,
            not_after=None if deadline is None else due_at + deadline * SECOND,
            position=(0, 0),
        )

    def accept(self, item: Item, item_id: int) -> None:
        item.id, item.position = item_id, (item_id, 0)
        self.model.accept(item)

    @rule(
        lane=some_lane,
        payload=some_payload,
        key=some_key,
        order_key=some_order_key,
        wait=some_wait,
        deadline=some_deadline,
    )
    def enqueue_one(
        self,
        *,
        lane: str,
        payload: int,
        key: str | None,
        order_key: str | None,
        wait: timedelta,
        deadline: int | None,
    ) -> None:
        item = self.make(
            lane, payload=payload, key=key, order_key=order_key, wait=wait, deadline=deadline
        )
        refused = _refusal(self._check_keys, [item])

        accepted = self.call(refused, enqueue(self.db, lane, _new(item), at=self.now, owner=OWNER))

        if refused is not None:
            return
        known = self.model.known(lane, key, payload)
        assert accepted.is_new == (known is None)
        if known is None:
            assert accepted.id > self.model.last_id
            self.accept(item, accepted.id)
        else:
            assert accepted.id == known

    @rule(
        lane=some_lane,
        rows=st.lists(
            st.tuples(some_payload, some_key, some_order_key, some_wait, some_deadline),
            min_size=1,
            max_size=6,
        ),
    )
    def enqueue_some(
        self,
        lane: str,
        rows: list[tuple[int, str | None, str | None, timedelta, int | None]],
    ) -> None:
        items = [
            self.make(
                lane, payload=payload, key=key, order_key=order_key, wait=wait, deadline=deadline
            )
            for payload, key, order_key, wait, deadline in rows
        ]
        refused = _refusal(self._check_keys, items)

        accepted = self.call(
            refused, enqueue_many(self.db, lane, map(_new, items), at=self.now, owner=OWNER)
        )

        for item, one in zip(items, accepted or [], strict=refused is None):
            known = self.model.known(lane, item.key, item.payload)
            assert one.is_new == (known is None)
            if known is None:
                self.accept(item, one.id)
            else:
                assert one.id == known

    def _check_keys(self, items: list[Item]) -> None:
        """Raise if a key comes with another payload than before, or than in this very batch."""
        first: dict[str, int] = {}
        for item in items:
            self.model.known(item.lane, item.key, item.payload)
            if item.key and first.setdefault(item.key, item.payload) != item.payload:
                raise Refused("KeyConflict")

    # A producer that has not committed yet: heads may end while its item is on its way.

    @precondition(lambda self: self.pending is None and self.model.taken_lines())
    @rule(number=some_number, wait=some_wait)
    def start_to_enqueue(self, number: int, wait: timedelta) -> None:
        lane, order_key = _pick(sorted(self.model.taken_lines()), number)
        item = self.make(lane, payload=1, key=None, order_key=order_key, wait=wait, deadline=None)

        transaction = self.world.producer.transaction()
        self.world.run(transaction.start())
        accepted = self.world.run(
            enqueue(self.world.producer, lane, _new(item), at=self.now, owner=OWNER)
        )

        item.id, item.position = accepted.id, (accepted.id, 0)
        self.pending = (transaction, item)
        self.model.note(accepted.id)
        self.model.parking = (lane, order_key)

    @precondition(lambda self: self.pending is not None)
    @rule(commits=st.booleans())
    def finish_enqueueing(self, commits: bool) -> None:
        assert self.pending is not None
        (transaction, item), self.pending = self.pending, None

        self.world.run(transaction.commit() if commits else transaction.rollback())

        if commits:
            self.model.accept(item)
        self.model.parking = None

    # -------------------------------------------------------------------- claim and settle

    @rule(lane=some_lane, limit=st.integers(1, 5))
    def take(self, lane: str, limit: int) -> None:
        """Often there is nothing due, or the lane is paused: then nothing may come."""
        self.take_from(lane, limit)

    @precondition(lambda self: self._due_lanes())
    @rule(number=some_number, limit=st.integers(2, 5))
    def take_what_is_due(self, number: int, limit: int) -> None:
        self.take_from(_pick(self._due_lanes(), number), limit)

    @precondition(lambda self: self._due_lanes())
    @rule(number=some_number, endings=some_endings)
    def work(self, number: int, endings: list[Ending]) -> None:
        """What a worker does all day: claim and settle."""
        self.take_from(_pick(self._due_lanes(), number), 3)
        worker = self.workers[-1]
        self.say(worker, _spread(worker.left, endings), closes=True)
        worker.left = []

    def _due_lanes(self) -> list[str]:
        return [lane for lane in LANES if self.model.due(lane, limit=1, now=self.now)]

    def take_from(self, lane: str, limit: int) -> None:
        """Claim in the kernel and in the model."""
        due = self.model.due(lane, limit=limit, now=self.now)
        lane_id = LANES.index(lane) + 1

        found = self.world.run(
            claim(self.db, lane_id, Cursor(), limit=limit, worker=WHO, now=self.now)
        )

        if not isinstance(found, Lease):
            assert due == [], f"{due} are due and were not claimed"
            return
        assert [claimed.id for claimed in found.items] == due
        for claimed in found.items:
            item = self.model.items[claimed.id]
            assert (claimed.attempt, claimed.forgiven) == (item.attempt, item.forgiven)
            assert claimed.payload == str(item.payload)
        assert all(found.token > worker.lease.token for worker in self.workers), "the fence grows"
        assert found.marks_starts == (self.model.lanes[lane].on_lost == "hold")
        self.model.claim(found.token, lane, due, now=self.now)
        self.workers.append(Worker(lane, found, list(found.items)))

    @precondition(lambda self: self._busy())
    @rule(number=some_number, count=st.integers(1, 3))
    def mark_started(self, number: int, count: int) -> None:
        """Some items of a lease start; what a dead worker has started may have been executed."""
        worker = _pick(self._busy(), number)
        ids = [claimed.id for claimed in worker.left[:count]]
        token = worker.lease.token

        rows = self.world.run(self.db.fetch(MARK_STARTED, [token] * len(ids), ids, self.now))

        assert bool(rows) == self.model.start(token, list(ids), now=self.now)

    @precondition(lambda self: self._busy())
    @rule(number=some_number, endings=some_endings)
    def settle_all(self, number: int, endings: list[Ending]) -> None:
        """Also what comes after the lease was rescued: then it must change nothing."""
        worker = _pick(self._busy(), number)

        self.say(worker, _spread(worker.left, endings), closes=True)

        worker.left = []

    @precondition(lambda self: self._busy(at_least=2))
    @rule(number=some_number, ending=some_ending, is_repeated=st.booleans())
    def settle_the_first(self, number: int, ending: Ending, is_repeated: bool) -> None:
        """A slow item keeps the rest of its lease waiting; the answer may get lost at once."""
        worker = _pick(self._busy(at_least=2), number)

        self.say(worker, {worker.left[0].id: ending}, closes=False)
        if is_repeated:
            self.say(worker, {worker.left[0].id: ending}, closes=False)

        worker.left = worker.left[1:]

    @precondition(lambda self: self._talkative())
    @rule(number=some_number, which=some_number)
    def repeat_a_settle(self, number: int, which: int) -> None:
        """The commit came through and its answer did not, so the worker says it again."""
        worker = _pick(self._talkative(), number)
        ended, closes = _pick(worker.said, which)

        self.say(worker, ended, closes=closes)

    @precondition(lambda self: self._interrupted())
    @rule(number=some_number, endings=some_endings)
    def repeat_a_settle_with_the_rest(self, number: int, endings: list[Ending]) -> None:
        """As the runner does: what it could not confirm goes along with what ended since."""
        worker = _pick(self._interrupted(), number)
        unconfirmed = worker.said[-1][0]

        self.say(worker, unconfirmed | _spread(worker.left, endings), closes=True)

        worker.left = []

    def say(self, worker: Worker, endings: dict[int, Ending], *, closes: bool) -> None:
        """Settle in the kernel and in the model."""
        by_id = {claimed.id: claimed for claimed in worker.lease.items}
        ended = [Ended(by_id[ItemId(id_)], _ending(ending), 0) for id_, ending in endings.items()]

        async def call() -> bool:
            lane = await read_lane(self.db, worker.lane)
            async with self.db.transaction():
                settled = await settle(
                    self.db, lane, worker.lease, ended=ended, closes=closes, now=self.now
                )
            return settled is not None

        was_ours = self.world.run(call())

        token = worker.lease.token
        assert was_ours == self.model.settle(token, endings, closes=closes, now=self.now)
        if (endings, closes) not in worker.said:
            worker.said.append((endings, closes))

    def _busy(self, *, at_least: int = 1) -> list[Worker]:
        return [worker for worker in self.workers if len(worker.left) >= at_least]

    def _talkative(self) -> list[Worker]:
        return [worker for worker in self.workers if worker.said]

    def _interrupted(self) -> list[Worker]:
        return [worker for worker in self.workers if worker.said and worker.left]

    # ------------------------------------------------------------------------ time and sweep

    @rule(seconds=st.sampled_from([1, 2, 6, 31, 100]))
    def wait(self, seconds: int) -> None:
        self.now += seconds * SECOND

    @precondition(lambda self: self.workers)
    @rule(number=some_number)
    def renew(self, number: int) -> None:
        token = _pick(self.workers, number).lease.token

        rows = self.world.run(self.db.fetch(EXTEND_LEASES, [token], self.now))

        assert {row["token"] for row in rows} == self.model.extend([token], now=self.now)

    @precondition(lambda self: self.model.leases)
    @rule()
    def rescue(self) -> None:
        lost = self.world.run(sweep.rescue(self.db, now=self.now))

        assert lost == self.model.rescue(now=self.now)

    @precondition(lambda self: self.model.leases)
    @rule()
    def lose_all_workers(self) -> None:
        """Nobody settles or renews until every lease is over; the workers come back too late."""
        self.now = max(lease.expires_at for lease in self.model.leases.values())
        self.rescue()

    @precondition(lambda self: self.model.deadlines)
    @rule()
    def expire(self) -> None:
        expired = self.world.run(sweep.expire(self.db, now=self.now))

        assert expired == self.model.expire(now=self.now)

    @precondition(lambda self: self.model.vacated)
    @rule()
    def promote_vacated(self) -> None:
        self.world.run(promote.promote_vacated(self.db))

        self.model.promote_vacated()

    # ----------------------------------------------------------------------------- operate

    @precondition(lambda self: self.model.items)
    @rule(number=st.integers(0, 40))
    def cancel(self, number: int) -> None:
        item_id = _pick(list(self.model.items), number)
        refused = _refusal(self.model.cancel, item_id)

        self.call(
            refused, operate.cancel(self.db, ItemId(item_id), who=WHO, owner=OWNER, now=self.now)
        )

    @precondition(lambda self: self.model.items)
    @rule(number=st.integers(0, 40), wait=some_wait)
    def reschedule(self, number: int, wait: timedelta) -> None:
        item_id = _pick(list(self.model.items), number)
        due_at = self.now + wait
        refused = _refusal(self.model.reschedule, item_id, due_at)

        self.call(
            refused, operate.reschedule(self.db, ItemId(item_id), due_at, who=WHO, owner=OWNER)
        )

    @precondition(lambda self: self._stopped())
    @rule(number=some_number)
    def retry(self, number: int) -> None:
        item_id = _pick(self._stopped(), number)
        refused = _refusal(self.model.retry, item_id, now=self.now)

        self.call(
            refused, operate.retry(self.db, ItemId(item_id), who=WHO, owner=OWNER, now=self.now)
        )

    @precondition(lambda self: self.model.items)
    @rule(number=st.integers(0, 40))
    def hold(self, number: int) -> None:
        item_id = _pick(list(self.model.items), number)
        refused = _refusal(self.model.hold, item_id)

        self.call(
            refused,
            operate.hold(
                self.db, ItemId(item_id), who=WHO, owner=OWNER, reason=BY_HAND, now=self.now
            ),
        )

    @precondition(lambda self: self._stopped())
    @rule(number=some_number)
    def release(self, number: int) -> None:
        item_id = _pick(self._stopped(), number)
        refused = _refusal(self.model.release, item_id, now=self.now)

        self.call(
            refused,
            operate.release(
                self.db, ItemId(item_id), who=WHO, owner=OWNER, reason=BY_HAND, now=self.now
            ),
        )

    @precondition(lambda self: self._stopped())
    @rule(number=some_number, outcome=st.sampled_from(["done", "dead"]))
    def resolve(self, number: int, outcome: Literal["done", "dead"]) -> None:
        item_id = _pick(self._stopped(), number)
        token = self.world.run(self.db.fetchval(LAST_TOKEN)) + 1
        refused = _refusal(self.model.resolve, item_id, outcome, token=token, now=self.now)

        self.call(
            refused,
            operate.resolve(
                self.db,
                ItemId(item_id),
                outcome,
                who=WHO,
                owner=OWNER,
                reason=BY_HAND,
                now=self.now,
            ),
        )

    @precondition(lambda self: self.model.items)
    @rule(number=st.integers(0, 40))
    def skip(self, number: int) -> None:
        item_id = _pick(list(self.model.items), number)
        refused = _refusal(self.model.skip, item_id, now=self.now)

        self.call(
            refused,
            operate.skip(
                self.db, ItemId(item_id), who=WHO, owner=OWNER, reason=BY_HAND, now=self.now
            ),
        )

    @precondition(lambda self: self.model.items)
    @rule(number=st.integers(0, 40))
    def retry_anything(self, number: int) -> None:
        item_id = _pick(list(self.model.items), number)
        refused = _refusal(self.model.retry, item_id, now=self.now)

        self.call(
            refused, operate.retry(self.db, ItemId(item_id), who=WHO, owner=OWNER, now=self.now)
        )

    def _stopped(self) -> list[int]:
        return [each.id for each in self.model.items.values() if each.state in ("held", "dead")]

    @precondition(lambda self: any(each.state == "dead" for each in self.model.items.values()))
    @rule(lane=some_lane)
    def start_replay(self, lane: str) -> None:
        counted = self.world.run(replay.count_dead(self.db, lane, now=self.now))
        started = self.world.run(
            replay.start_replay(self.db, lane, who=WHO, owner=OWNER, now=self.now)
        )

        assert counted == started.counted == self.model.start_replay(lane, now=self.now)

    @precondition(lambda self: self.model.replays)
    @rule()
    def continue_replays(self) -> None:
        replayed = self.world.run(replay.continue_replays(self.db, now=self.now))

        assert replayed == self.model.continue_replays(now=self.now)

    @precondition(lambda self: self.model.items and self.model.lanes["line"].is_owned)
    @rule(number=st.integers(0, 40), verb=st.sampled_from(list(GUARDS)))
    def call_as_another(self, number: int, verb: str) -> None:
        """A verb of another caller is refused in an owned lane, and changes nothing."""
        owned = [each.id for each in self.model.items.values() if each.lane == "line"]
        item_id = ItemId(_pick(owned, number))
        decided: dict[str, Any] = {"who": WHO, "reason": BY_HAND, "now": self.now}
        calls: dict[str, Callable[[], Coroutine[Any, Any, Any]]] = {
            "enqueue": partial(enqueue, self.db, "line", NewItem(payload=1), at=self.now),
            "retry": partial(operate.retry, self.db, item_id, who=WHO, now=self.now),
            "cancel": partial(operate.cancel, self.db, item_id, who=WHO, now=self.now),
            "reschedule": partial(operate.reschedule, self.db, item_id, self.now, who=WHO),
            "replay": partial(replay.start_replay, self.db, "line", who=WHO, now=self.now),
            "resolve": partial(operate.resolve, self.db, item_id, "done", **decided),
            "hold": partial(operate.hold, self.db, item_id, **decided),
            "release": partial(operate.release, self.db, item_id, **decided),
            "skip": partial(operate.skip, self.db, item_id, **decided),
        }

        self.call(Refused("LaneIsOwned"), calls[verb]())

    # -------------------------------------------------------------------------- invariants

    @invariant()
    def the_database_agrees(self) -> None:
        self.every_item_is_where_the_model_says()
        self.every_item_can_be_found()
        self.nothing_is_lost()
        self.no_key_has_two_heads()
        self.lines_are_taken_as_long_as_the_model_says()
        self.items_of_a_key_are_done_in_order()
        self.attempts_are_only_ever_added()
        self.late_results_stand_aside()

    def every_item_is_where_the_model_says(self) -> None:
        rows = self.world.run(self.db.fetch(PLACES))

        found = sorted((row["id"], row["state"], row["due_at"], row["reason"]) for row in rows)
        assert found == sorted(map(_place, self.model.items.values()))
        for row in rows:
            item = self.model.items[row["id"]]
            assert row["attempt"] in (None, item.attempt)
            assert row["forgiven"] in (None, item.forgiven)

    def every_item_can_be_found(self) -> None:
        rows = self.world.run(self.db.fetch(LOCATED))
        located = sorted((row["id"], row["state"]) for row in rows)
        assert located == sorted((each.id, each.state) for each in self.model.items.values())

        if self.model.items:
            last = self.world.run(read_item(self.db, ItemId(max(self.model.items))))
            assert last is not None
            assert last.payload == str(self.model.items[last.id].payload)

    def nothing_is_lost(self) -> None:
        counted = self.world.run(balance(self.db))

        assert counted.is_even
        assert counted.accepted == len(self.model.items)

    def no_key_has_two_heads(self) -> None:
        assert self.world.run(self.db.fetch(CROWDED_KEYS)) == []

    def lines_are_taken_as_long_as_the_model_says(self) -> None:
        rows = self.world.run(self.db.fetch(TAKEN_LINES))
        taken = {(row["name"], row["order_key"]): row["blocked_by"] for row in rows}
        vacated = {(row["name"], row["order_key"]) for row in rows if row["is_vacated"]}

        assert taken == self.model.taken_lines()
        assert vacated == self.model.vacated

    def items_of_a_key_are_done_in_order(self) -> None:
        rows = self.world.run(self.db.fetch(DONE))
        done = {(row["name"], row["order_key"]): list(row["ids"]) for row in rows}

        expected = {
            line: ids
            for line, ids in self.model.done.items()
            if self.model.lanes[line[0]].is_ordered
        }
        assert done == expected

    def attempts_are_only_ever_added(self) -> None:
        rows = self.world.run(self.db.fetch(ATTEMPTS))
        attempts = {(row["item_id"], row["attempt"]): tuple(row) for row in rows}
        assert attempts.items() >= self.attempts.items(), "what is written stays as it is"
        self.attempts = attempts

        for item in self.model.items.values():
            history = [row for row in rows if row["item_id"] == item.id]
            assert [row["attempt"] for row in history] == list(range(1, item.attempt + 1))
            assert [
                (row["attempt"], row["outcome"], row["token"]) for row in history
            ] == item.history
            assert [row["outcome"] for row in history].count("done") <= 1

    def late_results_stand_aside(self) -> None:
        rows = self.world.run(self.db.fetch(LATE))

        assert {(row["item_id"], row["token"]) for row in rows} == self.model.late


def _new(item: Item) -> NewItem:
    return NewItem(
        payload=item.payload,
        key=item.key,
        due_at=item.due_at,
        order_key=item.order_key,
        not_after=item.not_after,
    )


def _ending(ending: Ending) -> KernelEnding:
    """Return the kernel's own value for an ending; its reason is the outcome's name."""
    match ending.outcome:
        case "done":
            return Done()
        case "retry":
            return Retry("retry", ending.after)
        case "snooze":
            return Snooze(ending.after or timedelta(0), "snooze")
        case "hold":
            return Hold("hold")
        case "dead":
            return Dead("dead")
        case "returned":
            return Returned()


def _place(item: Item) -> tuple[int, str, datetime | None, str | None]:
    is_waiting = item.state in model.WAITING
    return (item.id, item.state, item.due_at if is_waiting else None, item.reason)


def _spread(claimed: list[Claimed], endings: list[Ending]) -> dict[int, Ending]:
    """Give each item an ending, over and over again from the list."""
    return {each.id: endings[index % len(endings)] for index, each in enumerate(claimed)}


def _pick(among: list[T], number: int) -> T:
    return among[number % len(among)]


def _refusal(change: Any, *arguments: Any, **named: Any) -> Refused | None:
    """Call the model; return its refusal, if it is one."""
    try:
        change(*arguments, **named)
    except Refused as refused:
        return refused
    return None
