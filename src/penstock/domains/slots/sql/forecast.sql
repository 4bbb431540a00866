-- The first $2 free cells of a pool from $3 on, without taking them. The gaps between the runs are
-- added up until there are enough; pieces are cut at the stretches' edges to count their windows.
WITH start AS MATERIALIZED (
    SELECT pool_id, penstock.first_cell_at(pool_id, greatest($3::timestamptz, coalesce($4, clock_timestamp()))) AS cell
    FROM penstock.slot_pool
    WHERE name = $1
), end_of_cells AS MATERIALIZED (
    SELECT max(last_cell) + 1 AS cell FROM penstock.slot_stretch JOIN start USING (pool_id)
), run AS (
    SELECT first_cell, last_cell FROM start
    CROSS JOIN LATERAL (
        SELECT first_cell, last_cell FROM penstock.slot_run
        WHERE pool_id = start.pool_id
            AND first_cell >= coalesce((
                SELECT before.first_cell FROM penstock.slot_run AS before
                WHERE before.pool_id = start.pool_id AND before.first_cell <= start.cell
                ORDER BY before.first_cell DESC
                LIMIT 1), start.cell)
            AND last_cell >= start.cell
    ) AS r
    UNION ALL SELECT cell, cell FROM end_of_cells
), gap AS (
    SELECT gap_cell, first_cell - gap_cell AS cells
    FROM (
        SELECT first_cell,
            coalesce(lag(last_cell) OVER (ORDER BY first_cell) + 1, start.cell) AS gap_cell
        FROM run, start
    ) AS between_runs
    WHERE first_cell > gap_cell
), summed AS (
    -- No gap counts for more than is wanted; as integers they are added up in half the time.
    SELECT gap_cell, cells, sum(cells) OVER (ORDER BY gap_cell ROWS UNBOUNDED PRECEDING) - cells
        AS cells_before
    FROM (SELECT gap_cell, least(cells, $2::bigint)::integer AS cells FROM gap) AS capped
), used AS (
    SELECT gap_cell AS low, gap_cell + least(cells, $2::bigint - cells_before) - 1 AS high
    FROM summed
    WHERE cells_before < $2
), piece AS (
    SELECT greatest(used.low, first_cell) AS low, least(used.high, last_cell) AS high,
        (greatest(used.low, first_cell) - first_cell + base) / capacity * window_us AS first_window,
        (least(used.high, last_cell) - first_cell + base) / capacity * window_us AS last_window,
        window_us
    FROM used
    JOIN start ON true
    JOIN penstock.slot_stretch AS stretch
        ON stretch.pool_id = start.pool_id
        AND stretch.first_cell <= used.high AND stretch.last_cell >= used.low
), counted AS (
    SELECT low, high, (high - low + 1)::integer AS cells,
        ((last_window - first_window) / window_us)::integer + 1
        - (first_window IS NOT DISTINCT FROM lag(last_window) OVER (ORDER BY low))::integer AS windows
    FROM piece
)
SELECT start.pool_id,
    coalesce(sum(cells), 0) AS cells,
    penstock.cell_at(start.pool_id, min(low)) AS first_at,
    penstock.cell_at(start.pool_id, max(high)) AS last_at,
    coalesce(sum(windows), 0) AS windows
FROM start LEFT JOIN counted ON true
GROUP BY start.pool_id;
