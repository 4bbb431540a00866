"""The tables of the rate limiter that slots replace exist as views."""

import pytest
from httpx import AsyncClient

from penstock import Penstock
from penstock.domains.slots.config import READ_CONFIG
from penstock.domains.slots.inspect import LIST_SLOTS, READ_SLOT
from penstock.postgres.pool import Pool, Row
from tests.domains.slots.scene import (
    DAY,
    NOON,
    SLOTS,
    after,
    body_of,
    make_config,
    text_of,
)

DOCUMENTED = {
    "rl_event_wndw_config": {
        "rl_wndw_config_id",
        "wndw_config_nm",
        "wndw_max_event_ct",
        "wndw_size_iso_dur_tx",
        "config_eff_strt_dt",
        "act_in",
        "creat_ts",
    },
    "rl_wndw_ct": {"wndw_strt_ts", "slot_ct", "creat_ts"},
    "rl_event_slot_dtl": {
        "wndw_slot_id",
        "event_id",
        "req_ts",
        "wndw_strt_ts",
        "computed_sched_ts",
        "rl_wndw_config_id",
        "creat_ts",
    },
    "rl_wndw_frontier_trk": {"req_ts", "wndw_end_ts", "creat_ts"},
}


FRONTIERS = """
    SELECT req_ts, wndw_end_ts, creat_ts FROM penstock.rl_wndw_frontier_trk
    WHERE wndw_config_nm = $1 ORDER BY req_ts
"""


async def columns_of(db: Pool, table: str) -> set[str]:
    rows = await db.fetch(
        """
        SELECT column_name FROM information_schema.columns
        WHERE table_schema = 'penstock' AND table_name = $1
        """,
        table,
    )
    return {row["column_name"] for row in rows}


@pytest.mark.covers("D12", "D15", "D17", "D20")
@pytest.mark.parametrize("table", DOCUMENTED)
async def test_a_view_has_the_columns_of_the_document(
    shared_penstock: Penstock, table: str
) -> None:
    """Counters and frontiers also have the config name, because configs do not share them."""
    columns = await columns_of(shared_penstock.pool, table)

    assert columns - {"wndw_config_nm"} == DOCUMENTED[table] - {"wndw_config_nm"}
    assert ("wndw_config_nm" in columns) == (table != "rl_event_slot_dtl")


@pytest.mark.covers("D11")
async def test_starting_up_creates_the_four_views(empty_dsn: str) -> None:
    async with Penstock(dsn=empty_dsn) as app:
        made = {table: await columns_of(app.pool, table) for table in DOCUMENTED}
        configs = await app.pool.fetchval("SELECT count(*) FROM penstock.rl_event_wndw_config")

    assert all(made[table] >= columns for table, columns in DOCUMENTED.items())
    assert configs == 1


@pytest.mark.covers("D12", "D13")
async def test_configs_are_shown_with_their_flag_and_their_size_as_a_duration(
    shared_admin: AsyncClient, shared_penstock: Penstock
) -> None:
    config = await make_config(shared_admin, 100, "PT0.5S")
    made = await config.change(maxPerWindow=50, windowSize="P1D")

    rows = await shared_penstock.pool.fetch(
        "SELECT * FROM penstock.rl_event_wndw_config WHERE wndw_config_nm = $1 ORDER BY creat_ts",
        config.name,
    )

    assert [
        (row["wndw_max_event_ct"], row["wndw_size_iso_dur_tx"], row["act_in"]) for row in rows
    ] == [(100, "PT0.5S", 0), (50, "PT86400S", 1)]
    assert rows[1]["rl_wndw_config_id"] == str(made["configId"])
    assert text_of(rows[1]["config_eff_strt_dt"]) == made["effectiveFrom"]


@pytest.mark.covers("D15", "D24")
async def test_counters_are_one_row_per_window(
    shared_admin: AsyncClient, shared_penstock: Penstock
) -> None:
    config = await make_config(shared_admin)
    await config.fill(6)

    rows = await shared_penstock.pool.fetch(
        """
        SELECT wndw_strt_ts, slot_ct, creat_ts FROM penstock.rl_wndw_ct
        WHERE wndw_config_nm = $1 ORDER BY wndw_strt_ts
        """,
        config.name,
    )

    assert [(row["wndw_strt_ts"], row["slot_ct"]) for row in rows] == [(NOON, 4), (after(4), 2)]
    assert all(row["creat_ts"] is not None for row in rows)


@pytest.mark.covers("D17", "D53")
async def test_slots_are_one_row_per_event(
    shared_admin: AsyncClient, shared_penstock: Penstock
) -> None:
    config = await make_config(shared_admin)
    await config.fill(5, after(0.5))
    shown = await config.show("filler-4")

    rows = await shared_penstock.pool.fetch(
        "SELECT * FROM penstock.rl_event_slot_dtl WHERE event_id LIKE $1 || '-%' ORDER BY 1",
        config.name,
    )

    assert len({row["wndw_slot_id"] for row in rows}) == 5
    last = rows[-1]
    assert last["event_id"] == shown["eventId"]
    assert last["req_ts"] == after(0.5)
    assert last["wndw_strt_ts"] == after(4)
    assert last["computed_sched_ts"] == after(5)
    assert last["rl_wndw_config_id"] == str(shown["configId"])
    assert text_of(last["creat_ts"]) == shown["createdAt"]


@pytest.mark.covers("D20")
async def test_the_frontier_is_the_end_of_each_run(
    shared_admin: AsyncClient, shared_penstock: Penstock
) -> None:
    config = await make_config(shared_admin)
    await config.fill(5)
    await config.fill(2, after(100), name="later")
    made = [(await config.show(event))["createdAt"] for event in ("filler-0", "later-0")]

    rows = await shared_penstock.pool.fetch(FRONTIERS, config.name)

    assert [(row["req_ts"], row["wndw_end_ts"]) for row in rows] == [
        (NOON, after(5)),
        (after(100), after(102)),
    ]
    assert [text_of(row["creat_ts"]) for row in rows] == made


@pytest.mark.covers("D20")
async def test_the_frontiers_of_stretches_that_join_become_one(
    shared_admin: AsyncClient, shared_penstock: Penstock
) -> None:
    """They tell what is booked now; a history that only grows would slow down every search."""
    config = await make_config(shared_admin)
    await config.fill(2)
    await config.fill(2, after(10), name="later")

    await config.fill(8, after(2), name="between")

    rows = await shared_penstock.pool.fetch(FRONTIERS, config.name)
    assert [(row["req_ts"], row["wndw_end_ts"]) for row in rows] == [(NOON, after(12))]


@pytest.mark.covers("D95")
async def test_the_longest_names_are_accepted_and_no_generated_id_is_longer(
    admin: AsyncClient, penstock: Penstock
) -> None:
    config_name, event_id = "ü" * 128, "é" * 50
    body = {"configName": config_name, "maxPerWindow": 1, "windowSize": "PT23H59M59.999999S"}
    body_of(await admin.post("/admin/rate-limit/config", json=body), 201)
    request = {"eventId": event_id, "configName": config_name, "requestedTime": text_of(NOON)}

    body_of(await admin.post(SLOTS, json=request))

    row = await penstock.pool.fetchrow(
        """
        SELECT event_id, wndw_config_nm, wndw_size_iso_dur_tx, wndw_slot_id, c.rl_wndw_config_id
        FROM penstock.rl_event_slot_dtl AS d
        JOIN penstock.rl_event_wndw_config AS c USING (rl_wndw_config_id)
        """
    )
    assert row is not None
    assert (row["event_id"], row["wndw_config_nm"]) == (event_id, config_name)
    assert len(row["wndw_size_iso_dur_tx"]) <= 25
    assert len(row["wndw_slot_id"]) <= 50
    assert len(row["rl_wndw_config_id"]) <= 50


# ------------------------------------------------------------------------------------ indexes


def plan_text(rows: list[Row]) -> str:
    return "\n".join(row[0] for row in rows)


@pytest.mark.covers("D14", "D19")
async def test_configs_and_slots_are_found_by_index(penstock: Penstock) -> None:
    """By name and flag; by event, by window and by creation time."""
    async with penstock.pool.acquire() as db, db.transaction():
        await db.execute("SET LOCAL enable_seqscan = off")
        config = await db.fetch("EXPLAIN " + READ_CONFIG, "default")
        event = await db.fetch("EXPLAIN " + READ_SLOT, "event")
        window = await db.fetch(
            "EXPLAIN " + LIST_SLOTS,
            "default",
            NOON,
            NOON + DAY,
            NOON,
            NOON - DAY,
            -1,
            10,
        )
        made = await db.fetch("EXPLAIN SELECT * FROM penstock.slot WHERE created_at > now()")

    assert "slot_config_one_active" in plan_text(config)
    assert "slot_pool_name_key" in plan_text(config)
    assert "event_has_one_slot" in plan_text(event)
    assert "place_is_taken_once" in plan_text(window)
    assert "slot_by_creation" in plan_text(made)
