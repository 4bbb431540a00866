"""The peer of the slot bars: the document's algorithm (`document.sql`), called by pgbench.

Each client asks for one slot after the other. One that gets none, the document's 503, asks again
for the same event, and only slots that were given are counted.
"""

from datetime import datetime
from pathlib import Path
from typing import Final

from bench import pgbench
from bench.figures import OTHERS
from bench.measure import Bench

NAME: Final = "the document"
SCHEMA: Final = Path(__file__).with_name("document.sql").read_text()
CLIENTS: Final = 16
CALL: Final = """
\\set number 100000000000 + :client_id * 1000000000 + :given
\\set wanted_ms :requested_ms + random(0, :spread_ms)
SELECT count(assign_slot('payment-' || :number,
    timestamptz 'epoch' + :wanted_ms * interval '1 ms', 'config-1', 100, '4 s')) AS slots \\gset
\\set given :given + :slots
"""
# $1 is the instant that all want, $2 how many windows they have filled, a multiple of a chunk.
FILL: Final = (
    """
    INSERT INTO rl_wndw_ct (wndw_strt_ts, slot_ct, creat_ts)
    SELECT $1::timestamptz + number * interval '4 s', 100, now()
    FROM generate_series(0, $2::integer) AS number
    """,
    """
    INSERT INTO rl_event_slot_dtl
        (wndw_slot_id, event_id, req_ts, wndw_strt_ts, computed_sched_ts, rl_wndw_config_id)
    SELECT uuidv7()::text, 'payment-' || window_no || '-' || number, $1, window_at,
        window_at + random() * interval '4 s', 'config-1'
    FROM generate_series(0, $2::integer) AS window_no
    CROSS JOIN LATERAL (SELECT $1::timestamptz + window_no * interval '4 s' AS window_at) AS w
    CROSS JOIN generate_series(1, 100) AS number
    """,
    """
    INSERT INTO rl_wndw_frontier_trk (req_ts, wndw_end_ts, creat_ts)
    SELECT $1, $1::timestamptz + (number + 1) * interval '4 s', now()
    FROM generate_series(100, $2::integer, 100) AS number
    """,
)
CHUNK_SLOTS: Final = 10_000  # a hundred windows of a hundred slots
GIVEN: Final = "SELECT count(*) FROM rl_event_slot_dtl"
MOST: Final = """
SELECT max(slots) FROM (
    SELECT count(*) OVER (
        ORDER BY computed_sched_ts RANGE BETWEEN CURRENT ROW AND interval '4 s' FOLLOWING
    ) AS slots
    FROM rl_event_slot_dtl
) AS sliding
"""


async def assign(
    bench: Bench, *, requested_at: datetime, spread_seconds: float = 0.0, booked: int = 0
) -> tuple[float, dict[str, float]]:
    """Return how many slots a second it gives to events that want one instant, or any of a span.

    `booked` is how many have got a slot for the instant before. The detail says how many slots fell
    into one interval of the window's length.
    """
    seconds = bench.sizes.burst_seconds
    async with (
        bench.server.database("bench_document") as database,
        bench.server.connect(database) as connection,
    ):
        await connection.execute(SCHEMA)
        if booked:
            bench.report.doing(f"{NAME}: {booked:,} slots booked before")
            windows = booked // CHUNK_SLOTS * 100
            for statement in FILL:
                await connection.execute(statement, requested_at, windows)
            await bench.server.rest(database)
        before = float(await connection.fetchval(GIVEN))
        await bench.quiet()
        bench.report.doing(f"{NAME}: {CLIENTS} clients for {seconds:g} s")
        with bench.watched() as others:
            ran = await pgbench.run(
                bench.server,
                database,
                CALL,
                *(f"--client={CLIENTS}", f"--time={seconds:g}", "--define=given=0"),
                f"--define=requested_ms={round(requested_at.timestamp() * 1000)}",
                f"--define=spread_ms={round(spread_seconds * 1000)}",
            )
        given = float(await connection.fetchval(GIVEN)) - before
        most = float(await connection.fetchval(MOST))
    return ran.per_second * given / ran.times, {
        "slots": given,
        "most": most,
        OTHERS: others.percent,
    }
