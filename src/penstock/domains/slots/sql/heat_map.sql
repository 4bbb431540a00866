-- How full a pool is from $2 until $3, in $4 buckets of equal length: all cells, and taken cells.
WITH pool AS MATERIALIZED (
    SELECT pool_id FROM penstock.slot_pool WHERE name = $1
), edge AS MATERIALIZED (
    SELECT pool_id, number, starts_at, coalesce(
        penstock.first_cell_at(pool_id, starts_at),
        (SELECT max(last_cell) + 1 FROM penstock.slot_stretch AS s WHERE s.pool_id = pool.pool_id)
        ) AS cell
    FROM pool
    CROSS JOIN generate_series(0, $4::integer) AS number
    CROSS JOIN LATERAL (
        SELECT $2::timestamptz + number * ($3::timestamptz - $2) / $4 AS starts_at
    ) AS s
), bucket AS (
    SELECT pool_id, number, starts_at, cell AS low, lead(cell) OVER (ORDER BY number) AS high
    FROM edge
)
SELECT starts_at, high - low AS capacity, taken.cells AS booked
FROM bucket
CROSS JOIN LATERAL (
    SELECT coalesce(sum(least(last_cell, high - 1) - greatest(first_cell, low) + 1), 0)::bigint
        AS cells
    FROM penstock.slot_run AS run
    WHERE run.pool_id = bucket.pool_id AND first_cell < high AND last_cell >= low
        AND first_cell >= coalesce((
            SELECT before.first_cell FROM penstock.slot_run AS before
            WHERE before.pool_id = bucket.pool_id AND before.first_cell <= low
            ORDER BY before.first_cell DESC
            LIMIT 1), low)
) AS taken
WHERE number < $4
ORDER BY number;
