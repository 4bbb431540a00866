-- Compute from the slots which cells of [from_at, until_at) are taken, and write the runs again.
-- Both ends must be edges of windows or of stretches. A slot takes the cell that its position is
-- in; if that one is taken, the next free one of its window; if there is none, the last free one. A
-- window with more slots than cells is full. So slots of an older rule count, wherever they are.
CREATE OR REPLACE FUNCTION penstock.mark_cells(
    in_pool integer, from_at timestamptz, until_at timestamptz
) RETURNS void
LANGUAGE plpgsql
SET enable_seqscan = off
SET work_mem = '128MB'
AS $$
DECLARE
    low bigint := penstock.first_cell_at(in_pool, from_at);
    high bigint := coalesce(
        penstock.first_cell_at(in_pool, until_at),
        (SELECT max(last_cell) + 1 FROM penstock.slot_stretch WHERE pool_id = in_pool));
    -- The longest time by which a slot's window may begin before it. With a fixed day, a whole day
    -- of slots would be read for one window of seconds.
    reach interval := (
        SELECT max(extract(epoch FROM window_size)) * interval '1 second'
        FROM penstock.slot_config
        WHERE pool_id = in_pool);
    left_end bigint;
    right_end bigint;
BEGIN
    WITH touching AS (
        DELETE FROM penstock.slot_run
        WHERE pool_id = in_pool AND last_cell >= low - 1 AND first_cell <= high
            AND first_cell >= coalesce((
                SELECT first_cell FROM penstock.slot_run
                WHERE pool_id = in_pool AND first_cell <= low
                ORDER BY first_cell DESC
                LIMIT 1), low)
        RETURNING first_cell, last_cell
    )
    SELECT min(first_cell), max(last_cell) INTO left_end, right_end FROM touching;

    WITH place AS (
        SELECT stretch.first_cell, stretch.first_cell - stretch.base AS shift, stretch.base,
            stretch.base + stretch.last_cell - stretch.first_cell AS last,
            stretch.capacity, stretch.window_us, slot.micros, slot.micros / stretch.window_us AS win
        FROM (
            SELECT *, penstock.to_micros(greatest(starts_at, from_at)) AS low_micros,
                penstock.to_micros(least(ends_at, until_at)) AS high_micros
            FROM penstock.slot_stretch
            WHERE pool_id = in_pool AND ends_at > from_at AND starts_at < until_at
            OFFSET 0
        ) AS stretch
        CROSS JOIN LATERAL (
            SELECT penstock.to_micros(window_at) + position AS micros
            FROM penstock.slot
            WHERE pool_id = in_pool
                AND window_at > greatest(stretch.starts_at, from_at) - reach
                AND window_at < least(stretch.ends_at, until_at)
            OFFSET 0
        ) AS slot
        WHERE slot.micros >= low_micros AND slot.micros < high_micros
    ), ranked AS (
        SELECT first_cell, shift, win, micros,
            greatest(win * capacity, base) AS lowest,
            least(win * capacity + capacity - 1, last) AS highest,
            greatest(win * capacity + micros % window_us * capacity / window_us, base) AS wanted,
            row_number() OVER (PARTITION BY first_cell, win ORDER BY micros) - 1 AS rank,
            count(*) OVER (PARTITION BY first_cell, win) AS slots
        FROM place
    ), taken AS (
        SELECT shift + CASE
            WHEN slots > highest - lowest THEN lowest + rank
            ELSE least(
                rank + max(wanted - rank) OVER (PARTITION BY first_cell, win ORDER BY micros),
                highest - slots + 1 + rank)
        END AS cell
        FROM ranked
        WHERE rank <= highest - lowest
    ), island AS (
        SELECT min(cell) AS first_cell, max(cell) AS last_cell
        FROM (SELECT cell, cell - row_number() OVER (ORDER BY cell) AS run FROM taken) AS numbered
        GROUP BY run
    ), piece AS (
        SELECT first_cell, last_cell FROM island
        UNION ALL SELECT left_end, low - 1 WHERE left_end < low
        UNION ALL SELECT high, right_end WHERE right_end >= high
    ), opened AS (
        SELECT first_cell, last_cell,
            first_cell > coalesce(lag(last_cell) OVER (ORDER BY first_cell) + 1, -1) AS is_apart
        FROM piece
    ), joined AS (
        SELECT first_cell, last_cell,
            count(*) FILTER (WHERE is_apart) OVER (ORDER BY first_cell) AS run
        FROM opened
    )
    INSERT INTO penstock.slot_run (pool_id, first_cell, last_cell)
    SELECT in_pool, min(first_cell), max(last_cell) FROM joined GROUP BY run;
END $$;
