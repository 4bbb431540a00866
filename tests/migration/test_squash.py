"""The squash of the migrations changed no schema, and databases from before it are adopted.

The stored files are of the commit before the squash. When a later change of the schema makes them
a burden, and nobody runs such a database any more, they and this file may go.
"""

import json
import re
from hashlib import sha256
from pathlib import Path
from typing import LiteralString, cast

import pytest

from penstock.kernel.inspect import list_audit, read_item
from penstock.kernel.item import Done, ItemId
from penstock.kernel.lane import list_lanes, read_lane
from penstock.kernel.retain import trim_retained
from penstock.postgres.functions import read_functions
from penstock.postgres.migrate import CREATE_MIGRATION_TABLES, RECORD_MIGRATION, check, migrate
from penstock.postgres.pool import Connection, Pool, Queries
from penstock.postgres.steps import read_steps
from tests.database import MIGRATION_PACKAGES
from tests.kernel.scene import end, take
from tests.migration.catalogue import read_catalogue

FOLDER = Path(__file__).parent

# What differs on purpose from the stored catalogue, as patterns of its lines.
REMOVED = (
    # Renamed to lane_pacing.
    r"(relation|column|constraint|index CREATE UNIQUE INDEX) gate\b.*",
    r"index CREATE UNIQUE INDEX gate_pkey .*",
    # The kernel looks up functions of the slots when it calls them, not before.
    r"function enqueue_many\(.*",
    r"function slot_newcomers\(.*",
    # Items of an owned lane are enqueued by its domain; limits per key.
    r"function (enqueue|enqueue_staged|enqueue_deliveries)\(.*",
    # Strict pools.
    r"function (assign_slots|set_slot_config)\(.*",
    # Other names in the body.
    r"function (accept_events|take_cells)\(.*",
    # Run as their owner.
    r"function (open_day|drop_day)\(.*",
    # Joined with a sequence that refuses locks.
    r"view (rl_\w+|events|delivery_attempts|subscriptions) .*",
    # Deliveries are paged, and an event without any has no instant of delivery.
    r"function webhook_(deliveries|progress)\(.*",
    # Held and dead items keep their due instant; attempts of operators and of cancelled items.
    r"function (locate|replay_dead|move_due_instants)\(.*",
    # Tells how many keys it could not close.
    r"function promote\(.*",
    # The scope `approve`.
    r"constraint api_key\.scopes_are_known .*",
    # Rows of domains that belong to items.
    r"function add_daily_table\(.*",
)
# The functions of domains that came later, and of tables that must not be changed.
ADDED_FUNCTIONS = (
    # Kernel.
    "refuse_change",
    # Mail.
    "mail_address", "mail_check_keys", "mail_hash", "mail_place", "mail_progress", "put_mail_blob",
    "send_mail", "send_mails", "take_mail_quota", "write_mail_results",
    # Outbox.
    "add_outbox_seal", "begin_outbox_era", "bump_participant_outbox_seq", "bump_participants",
    "currency_unit", "date_rail_promises", "dispatching_id", "drop_outbox_month",
    "find_outbox_limit", "insert_payment_outbox_pending", "open_outbox_items",
    "open_outbox_month", "outbox_amount",
    "outbox_attempt_hash", "outbox_fault", "outbox_has_failed", "outbox_hash",
    "outbox_is_of_refused_call", "outbox_is_paid", "outbox_is_paid_late", "outbox_known_calls",
    "outbox_last_cleared", "outbox_last_states", "outbox_past_calls", "outbox_progress",
    "outbox_rows_hash", "outbox_seal_hash", "outbox_state", "repeat_instruction",
    "seal_outbox", "send_instruction", "send_instructions", "suspend_after_failure", "uuid_v7",
    "uuid_v7_at", "uuids_v7",
    # Payments.
    "add_payment_item_type", "check_exec_rate_config", "check_payment_contexts",
    "dispatch_batch_id", "move_payments",
    "note_moved_instants", "payment_statuses_before", "read_payment_rules", "refuse_payment_move",
    "save_context_and_enqueue",
)  # fmt: skip
ADDED = (
    *(rf"function {name}\(.*" for name in ADDED_FUNCTIONS),
    r"(relation|column|constraint) lane_pacing\b.*",
    r"index CREATE UNIQUE INDEX lane_pacing_pkey .*",
    r"function enqueue_many\(.*penstock\.release_due_instant.*",
    r"function slot_newcomers\(.*LANGUAGE plpgsql.*",
    r"function (release|retake)_due_instant\(.*",
    r"function (open_day|drop_day)\(.*SECURITY DEFINER.*",
    # The table of functions.
    r"(relation|column|constraint) function_version\b.*",
    r"index CREATE UNIQUE INDEX function_has_one_version .*",
    # The policies of lanes as exec_rate_config, which can be updated.
    r"(relation|column|view) exec_rate_config\b.*",
    r"trigger CREATE TRIGGER exec_rate_config_is_changed .*",
    r"function (set_lane|change_exec_rate_config)\(.*",
    # Strict pools.
    r"(column|constraint) (slot_pool|slot_config)\..*\bis_strict\b.*",
    r"function (assign_slots|set_slot_config)\(.*is_strict.*",
    # Other names in the body.
    r"function accept_events\(.*\bnew_event\b.*",
    r"function take_cells\(.*\brequest_group\b.*",
    # Views refuse to be written or locked.
    r"function refuse_write\(.*",
    r"trigger CREATE TRIGGER \w+_is_read_only .*",
    r"(relation|sequence) (use_penstock_assign_slots|run_penstock_worker)\b.*",
    r"view rl_\w+ .*CROSS JOIN penstock\.use_penstock_assign_slots.*",
    r"view (events|delivery_attempts|subscriptions) .*CROSS JOIN penstock\.run_penstock_worker.*",
    r"function webhook_deliveries\(.*after_subscription integer.*",
    r"function webhook_progress\(.*, CASE WHEN bool_and\(status = 'delivered'\).*",
    # What attempts record of an exception.
    r"(column|constraint) lane\b.*error_detail.*",
    # What becomes of items whose worker died, and decisions about many items.
    r"(column|constraint) lane\b.*on_lost.*",
    r"column lease\b.*started_ids.*",
    r"function select_items\(.*",
    # Held and dead items keep their due instant; attempts of operators and of cancelled items.
    r"column (held|dead)\.due_at\b.*",
    r"column (attempt\w*\.resolved_by|late_result\.result)\b.*",
    r"function locate\(.*held\.due_at.*resolved_by.*",
    r"function replay_dead\(.*dead\.due_at.*",
    r"function move_due_instants\(.*penstock\.held.*",
    # Owned lanes.
    r"(column|constraint) lane\b.*(owner|guards).*",
    r"function (enqueue|enqueue_staged)\(.*owner text.*",
    r"function enqueue_deliveries\(.*'penstock\.webhooks'.*",
    r"function (check_guard|policy_values|reset_order)\(.*",
    # Workers that run.
    r"(relation|column|constraint) worker\b.*",
    r"index CREATE UNIQUE INDEX worker_pkey .*",
    # Mail.
    r"(relation|column|constraint|sequence|view|index CREATE (UNIQUE )?INDEX) mail(_\w+)?\b.*",
    r"(relation|sequence) penstock_worker_sends_mail\b.*",
    # Outbox.
    r"(relation|column|constraint|view) (outbox|participant_outbox|payment_outbox)_\w+\b.*",
    r"index CREATE (UNIQUE )?INDEX .* ON (ONLY )?\S*(outbox_|participant_outbox)\w+ .*",
    r"(relation|sequence) penstock_worker_dispatches\b.*",
    r"trigger CREATE TRIGGER (outbox|payment_outbox)_\w+ .*",
    r"trigger CREATE TRIGGER failure_suspends .*",
    r"sequence (outbox_gap_gap_id|payment_kept_result_id)_seq\b.*",
    # Payments.
    r"(relation|column|constraint|view) (payment|dispatch_audit_log)(_\w+)?\b.*",
    r"index CREATE (UNIQUE )?INDEX .* ON (ONLY )?\S*(payment|dispatch_audit_log)\w* .*",
    r"trigger CREATE TRIGGER (payment|dispatch_audit_log)_\w+ .*",
    r"(relation|sequence) penstock_worker_dispatches_payments\b.*",
    # Items of an order key, and keys that a dead item blocks, are found by an index.
    r"(relation|index CREATE INDEX) (item_\w+order_key\w*|active_key_blocked)\b.*",
    r"function blocked_keys\(.*",
    # Retention per lane.
    r"(relation|column|constraint) (history_day|retained_item)\b.*",
    r"index CREATE (UNIQUE )?INDEX (history_day|retained_item)_\w+ .*",
    r"(relation|column|view) ending\b.*",
    r"function trim_items\(.*",
    # The scope `approve`, and which key made a key.
    r"constraint api_key\.scopes_are_known .*'approve'.*",
    r"column api_key\.created_by .*",
    # Tells how many keys it could not close.
    r"function promote\(.*RETURNS integer.*",
    # Rows of domains that belong to items, and dead items by time.
    r"column daily_table\.item_column\b.*",
    r"function add_daily_table\(.*item_column.*",
    r"(relation|index CREATE INDEX) dead_by_time\b.*",
    # A concurrency over all workers.
    r"(column|constraint) lane\b.*concurrency_total.*",
    r"function items_in_flight\(.*",
    # The age of what cannot leave, and numbers that no instruction has taken.
    r"function oldest_snoozed\(.*",
    # Limits per key.
    r"(column|constraint) lane\b.*key_limits.*",
    r"(column|constraint) item\w*\..*limit_keys.*",
    r"function (enqueue|enqueue_staged)\(.*limit_keys.*",
)

# Rows as they were written by the release before: a lane with a rate, items, a slot, an event.
ROWS: tuple[LiteralString, ...] = (
    "INSERT INTO penstock.lane (name, rate) VALUES ('mail', 5), ('webhooks', NULL)",
    "INSERT INTO penstock.gate SELECT lane_id, '2026-01-01Z', now() FROM penstock.lane",
    """SELECT penstock.enqueue('mail', '{"to": "a"}', key => 'a')""",
    """SELECT penstock.enqueue('mail', '{"to": "b"}', key => 'b', due_at => '2100-01-01Z')""",
    "SELECT * FROM penstock.assign_slots('default', ARRAY['pay-1'], ARRAY[now()])",
    """SELECT * FROM penstock.accept_event('order.paid', '{"order": 1}', event_id => 'e-1')""",
)


@pytest.fixture
async def previous(connection: Connection) -> Connection:
    """A database of the commit before the squash, with data."""
    await connection.execute(CREATE_MIGRATION_TABLES)
    await connection.execute("DROP TABLE penstock.function_version")
    for package in MIGRATION_PACKAGES:
        files = sorted((FOLDER / "before_squash" / package.rpartition(".")[2]).glob("*.sql"))
        for number, file in enumerate(files, start=1):
            script = cast("LiteralString", file.read_text(encoding="utf-8"))
            await connection.execute(script)
            checksum = sha256(script.encode()).hexdigest()
            await connection.execute(RECORD_MIGRATION, package, number, file.stem, checksum)
    for row in ROWS:
        await connection.execute(row)
    return connection


def stored_catalogue() -> list[str]:
    return (FOLDER / "before_squash.txt").read_text(encoding="utf-8").splitlines()


def unused(lines: set[str], patterns: tuple[str, ...]) -> list[str]:
    return [
        pattern for pattern in patterns if not any(re.fullmatch(pattern, line) for line in lines)
    ]


def unexplained(lines: set[str], patterns: tuple[str, ...]) -> list[str]:
    return sorted(
        line for line in lines if not any(re.fullmatch(pattern, line) for pattern in patterns)
    )


async def test_a_new_database_is_what_it_was_before_the_squash(connection: Connection) -> None:
    """Nothing was lost on the way from sixteen files to one per object."""
    await migrate(connection, MIGRATION_PACKAGES)

    before, after = set(stored_catalogue()), set(await read_catalogue(connection))

    assert unexplained(before - after, REMOVED) == []
    assert unexplained(after - before, ADDED) == []
    assert unused(before - after, REMOVED) == []
    assert unused(after - before, ADDED) == []


async def test_the_stored_catalogue_is_that_of_the_stored_migrations(previous: Connection) -> None:
    """Otherwise the two tests around this one would compare with different pasts."""
    assert await read_catalogue(previous) == stored_catalogue()


async def test_a_database_from_before_the_squash_becomes_the_same_as_a_new_one(
    previous: Connection, db: Pool
) -> None:
    await migrate(previous, MIGRATION_PACKAGES)

    async with db.acquire() as new:
        assert await read_catalogue(previous) == await read_catalogue(new)
    assert await records_of(previous) == await records_of(db)
    assert await migrate(previous, MIGRATION_PACKAGES) == []
    await check(previous, MIGRATION_PACKAGES)


async def test_the_data_of_a_database_from_before_the_squash_is_kept(previous: Connection) -> None:
    await migrate(previous, MIGRATION_PACKAGES)

    pacing = await previous.fetchval(
        "SELECT next_slot_at::text FROM penstock.lane_pacing JOIN penstock.lane USING (lane_id) "
        "WHERE name = 'mail'"
    )
    slots = await previous.fetch("SELECT event_id FROM penstock.rl_event_slot_dtl")
    events = await previous.fetch("SELECT id, status FROM penstock.events")
    again = await previous.fetchrow(
        "SELECT outcome FROM penstock.accept_event("
        """'order.paid', '{"order": 1}', event_id => 'e-1')"""
    )

    assert pacing.startswith("2026-01-01")
    assert [row["event_id"] for row in slots] == ["pay-1"]
    assert [tuple(row) for row in events] == [("e-1", "delivered")]
    assert again is not None
    assert again["outcome"] == "existing"


async def test_the_lanes_of_webhooks_are_renamed_with_their_policy_and_items(
    previous: Connection,
) -> None:
    """The events that were accepted before are still to be delivered."""
    await previous.execute(
        "INSERT INTO penstock.lane (name) VALUES ('webhooks.ordered'), ('webhooks.mine')"
    )
    await previous.execute("UPDATE penstock.lane SET max_attempts = 9 WHERE name = 'webhooks'")
    await previous.execute("SELECT penstock.enqueue('webhooks', '[1, 2]')")
    number = await previous.fetchval("SELECT lane_id FROM penstock.lane WHERE name = 'webhooks'")

    await migrate(previous, MIGRATION_PACKAGES)

    lanes = {lane.name: lane for lane in await list_lanes(previous)}
    renamed = lanes["penstock.webhooks"]
    (entry, *_) = await list_audit(previous, subject="penstock.webhooks")
    assert lanes.keys() == {
        "mail", "payment", "penstock.webhooks", "penstock.webhooks.ordered", "webhooks.mine",
    }  # fmt: skip
    assert (renamed.lane_id, renamed.owner, renamed.max_attempts) == (number, "webhooks", 9)
    assert len((await take(previous, renamed, now=None)).items) == 1
    assert json.loads(entry.before or "") == {"name": "webhooks"}
    assert json.loads(entry.after or "") == {"name": "penstock.webhooks"}


async def test_items_from_before_the_squash_are_claimed_and_settled(previous: Connection) -> None:
    await migrate(previous, MIGRATION_PACKAGES)
    lane = await read_lane(previous, "mail")

    lease = await take(previous, lane, now=None)
    assert await end(previous, lane, lease, Done(), now=None)

    states = {
        row["key"]: (found.state if (found := await read_item(previous, ItemId(row["id"]))) else "")
        for row in await previous.fetch("SELECT id, key FROM penstock.item WHERE key IS NOT NULL")
    }
    assert states == {"a": "done", "b": "scheduled"}


async def test_what_retention_had_kept_before_leaves_after_the_upgrade(
    previous: Connection,
) -> None:
    """Rows that had been moved out of a dropped day were never deleted."""
    await previous.execute(
        "INSERT INTO penstock.item (id, due_at, created_at, lane_id, payload) "
        "SELECT 7, '2020-01-01Z', '2020-01-01Z', lane_id, 'null' FROM penstock.lane "
        "WHERE name = 'mail'"
    )
    await previous.execute(
        "INSERT INTO penstock.attempt "
        "(item_id, token, claimed_at, settled_at, lane_id, duration_ms, attempt, outcome) "
        "SELECT id, 1, due_at, due_at, lane_id, 1, 1, 'done' FROM penstock.item WHERE id = 7"
    )
    days = "SELECT count(*) FROM pg_inherits WHERE inhparent = 'penstock.item'::regclass"
    partitions = await previous.fetchval(days)

    await migrate(previous, MIGRATION_PACKAGES)

    assert await trim_retained(previous) == 1
    assert await read_item(previous, ItemId(7)) is None
    assert await previous.fetchval("SELECT count(*) FROM penstock.attempt WHERE item_id = 7") == 0
    assert await previous.fetchval("SELECT count(*) FROM penstock.retained_item") == 0
    assert await previous.fetchval("SELECT count(*) + 1 FROM penstock.history_day") == partitions


async def test_the_default_pool_is_as_the_functions_would_make_it(db: Pool) -> None:
    """The migration inserts its rows by hand, since it must not call functions."""
    await db.execute(
        """
        SELECT penstock.set_slot_config(
            'twin', 100, interval '4 seconds', 'even', interval '366 days', NULL, NULL,
            NULL, NULL, NULL, NULL, 'migration', created_at)
        FROM penstock.slot_config
        """
    )

    made = await db.fetch(
        """
        SELECT to_jsonb(pool) - 'pool_id' - 'name' AS pool,
            to_jsonb(config) - 'pool_id' - 'config_id' AS config,
            to_jsonb(stretch) - 'pool_id' - 'config_id' AS stretch
        FROM penstock.slot_pool AS pool
        JOIN penstock.slot_config AS config USING (pool_id)
        JOIN penstock.slot_stretch AS stretch USING (pool_id)
        """
    )

    assert len(made) == 2
    assert tuple(made[0]) == tuple(made[1])


async def records_of(db: Queries) -> list[tuple[object, ...]]:
    steps = await db.fetch("SELECT owner, number, name, checksum FROM penstock.migration")
    functions = await db.fetch(
        "SELECT owner, version, name, checksum FROM penstock.function_version"
    )
    return sorted(tuple(row) for row in (*steps, *functions))


async def test_the_migration_tables_name_what_is_shipped(db: Pool) -> None:
    shipped = [
        (package, number, name, checksum)
        for package in MIGRATION_PACKAGES
        for number, name, checksum in (
            *(
                (step.number, step.name, step.checksum)
                for step in read_steps(package)
                if not step.is_post
            ),
            *((each.version, each.name, each.checksum) for each in read_functions(package)),
        )
    ]

    assert await records_of(db) == sorted(shipped)
