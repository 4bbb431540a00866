"""`penstock.set_lane` in SQL does what Python, REST and the command line do: they all call it."""

import asyncio
import json
from typing import Any

import asyncpg
import pytest

from penstock.kernel.claim import SLOTS_AHEAD
from penstock.kernel.inspect import list_audit
from penstock.kernel.lane import FIELDS, Lane, create_lane, policy_of, read_lane, set_lane
from penstock.kernel.operate import cancel
from penstock.postgres.pool import Connection, Pool, connect
from tests.kernel.scene import MINUTE, NOON, PATIENCE, put, try_claim
from tests.kernel.test_lane import GOOD

SET = "SELECT * FROM penstock.set_lane($1, $2::jsonb)"


async def set_by_sql(db: Connection, lane: str, **changes: object) -> None:
    await db.execute(SET, lane, json.dumps(changes))


async def refusal(db: Connection, lane: str, **changes: object) -> Any:
    """Return the error of a change that is refused, which changes nothing."""
    before, audited = await read_lane(db, "mail"), await list_audit(db)
    with pytest.raises(asyncpg.PostgresError) as refused:
        await set_by_sql(db, lane, **changes)
    assert (await read_lane(db, "mail"), await list_audit(db)) == (before, audited)
    return refused.value


async def test_a_change_in_sql_is_read_by_everyone(db: Connection, lane: Lane) -> None:
    await set_by_sql(db, lane.name, rate=5, lease="1 minute", slot_pool=None)

    changed = await read_lane(db, lane.name)
    assert (changed.rate, changed.lease, changed.version) == (5, MINUTE, lane.version + 1)


async def test_every_field_can_be_set_in_sql(db: Connection, lane: Lane) -> None:
    for name, value in GOOD.items():
        await set_by_sql(db, lane.name, **{name: FIELDS[name].to_json(value)})

    assert GOOD.items() <= policy_of(await read_lane(db, lane.name)).items()


async def test_the_audit_says_who_and_has_durations_in_seconds(db: Connection, lane: Lane) -> None:
    await set_by_sql(db, lane.name, rate=5, lease="1.5 minutes")
    await db.execute(
        "SELECT penstock.set_lane('mail', who => 'ann', changes => $1::jsonb)", '{"burst": 3}'
    )

    (second, first, *_) = await list_audit(db, subject=lane.name)

    assert (first.who, first.action) == ("sql:postgres", "lane.changed")
    assert json.loads(first.before or "") == {"rate": None, "lease": 30}
    assert json.loads(first.after or "") == {"rate": 5, "lease": 90}
    assert (second.who, json.loads(second.after or "")) == ("ann", {"burst": 3})


async def test_the_audit_of_sql_and_of_python_are_the_same(db: Connection, lane: Lane) -> None:
    await set_lane(db, lane.name, who="sql:postgres", backoff_cap=MINUTE, enabled=False)
    await set_lane(db, lane.name, who="ann", backoff_cap=lane.backoff.cap, enabled=True)
    await set_by_sql(db, lane.name, backoff_cap="60 seconds", enabled=False)

    (latest, _, earlier, *_) = await list_audit(db, subject=lane.name)

    assert (latest.who, latest.before, latest.after) == (
        earlier.who,
        earlier.before,
        earlier.after,
    )


async def test_a_change_in_sql_wakes_the_workers(dsn: str, lane: Lane) -> None:
    heard: asyncio.Queue[str] = asyncio.Queue()
    session = await connect(dsn)
    await session.add_listener("penstock", lambda *event: heard.put_nowait(event[3]))

    await set_by_sql(session, lane.name, batch_size=7)

    assert await asyncio.wait_for(heard.get(), PATIENCE) == "policy"
    await session.close()


async def test_a_pause_in_sql_stops_claims_once_it_commits(
    db: Connection, pool: Pool, lane: Lane
) -> None:
    """The function locks the lane, as a claim does: one that comes later waits for the commit."""
    await put(db, lane)
    async with pool.acquire() as operator:
        transaction = operator.transaction()
        await transaction.start()
        await set_by_sql(operator, lane.name, enabled=False)

        claiming = asyncio.ensure_future(try_claim(db, lane))
        await wait_for_lock(pool)
        await transaction.commit()

        assert not hasattr(await claiming, "items")


async def wait_for_lock(pool: Pool) -> None:
    """Return once a session waits for a lock."""
    async with asyncio.timeout(PATIENCE):
        while not await pool.fetchval(
            "SELECT count(*) FROM pg_stat_activity "
            "WHERE wait_event_type = 'Lock' AND datname = current_database()"
        ):
            continue


async def test_an_unknown_lane_is_refused(db: Connection, lane: Lane) -> None:
    refused = await refusal(db, "mial", rate=5)

    assert (refused.sqlstate, str(refused)) == ("PS404", "unknown lane 'mial'")
    assert lane.name == "mail"


@pytest.mark.usefixtures("lane")
@pytest.mark.parametrize("field", ["speed", "lane_id", "name", "version", "owner", "guards"])
async def test_an_unknown_field_is_refused_by_its_name(db: Connection, field: str) -> None:
    refused = await refusal(db, "mail", rate=5, **{field: None})

    assert refused.sqlstate == "PS400"
    assert str(refused) == f"'{field}' is not part of a lane's policy"


@pytest.mark.usefixtures("lane")
@pytest.mark.parametrize(
    ("field", "value", "rule"),
    [
        ("rate", 0, "rate_is_sane"),
        ("batch_size", 0, "batch_size_is_sane"),
        ("ordering", "fifo", "ordering_is_known"),
        ("lease", "2 days", "lease_is_sane"),
    ],
)
async def test_a_value_out_of_range_violates_a_named_check(
    db: Connection, *, field: str, value: object, rule: str
) -> None:
    refused = await refusal(db, "mail", **{field: value})

    assert refused.constraint_name == rule


@pytest.mark.usefixtures("lane")
async def test_a_value_that_is_missing_names_its_column(db: Connection) -> None:
    refused = await refusal(db, "mail", batch_size=None)

    assert (refused.sqlstate, refused.column_name) == ("23502", "batch_size")


async def test_the_ordering_of_a_lane_with_items_cannot_change_in_sql(
    db: Connection, lane: Lane
) -> None:
    item_id = await put(db, lane)

    refused = await refusal(db, lane.name, ordering="per_key")
    await set_by_sql(db, lane.name, ordering="none", batch_size=7)
    await cancel(db, item_id, who="ops", now=NOON)
    await set_by_sql(db, lane.name, ordering="per_key")

    assert refused.sqlstate == "PS409"
    assert json.loads(refused.detail) == {"lane": "mail", "field": "ordering"}
    assert (await read_lane(db, lane.name)).ordering == "per_key"


async def test_a_guarded_field_is_refused_in_sql(db: Connection, lane: Lane) -> None:
    guards = {"set:rate": "the contract says 5 per second"}
    await create_lane(db, lane.name, who="app", owner="rails", guards=guards)

    refused = await refusal(db, lane.name, rate=6)
    await db.execute("SELECT penstock.set_lane('mail', $1::jsonb, owner => 'rails')", '{"rate": 6}')

    assert refused.sqlstate == "PS403"
    assert "refuses a change of rate: the contract says 5 per second" in str(refused)
    assert (await read_lane(db, lane.name)).rate == 6


async def test_the_function_counts_on_the_slots_that_workers_take_ahead(
    db: Connection,
) -> None:
    """Callers in SQL do not give it."""
    ahead = await db.fetchval(
        "SELECT substring(pg_get_function_arguments('penstock.set_lane'::regproc) "
        "FROM 'slots_ahead interval DEFAULT (.*?)::interval')"
    )

    assert await db.fetchval("SELECT trim($1::text, '''')::interval", ahead) == SLOTS_AHEAD
