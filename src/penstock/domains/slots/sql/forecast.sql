-- The first $2 free cells of a pool from $3 on, without taking them. The last cell is the one that
-- it would be if none were taken, plus the cells of all runs before it. A run is before it if fewer
-- than $2 free cells precede the run.
WITH pool AS MATERIALIZED (
    SELECT pool_id,
        penstock.first_cell_at(
            pool_id, greatest($3::timestamptz, coalesce($4, clock_timestamp()))) AS cell
    FROM penstock.slot_pool
    WHERE name = $1
), start AS MATERIALIZED (
    SELECT pool_id, greatest(cell, (
        SELECT last_cell + 1 FROM penstock.slot_run
        WHERE pool_id = pool.pool_id AND first_cell <= cell
        ORDER BY first_cell DESC
        LIMIT 1)) AS cell
    FROM pool
), run AS (
    -- As floats, which are exact up to 2^53, the sum takes half the time.
    SELECT last_cell, sum((last_cell - first_cell + 1)::float8)
        OVER (ORDER BY first_cell ROWS UNBOUNDED PRECEDING)::bigint AS taken
    FROM penstock.slot_run
    WHERE pool_id = (SELECT pool_id FROM start) AND first_cell > (SELECT cell FROM start)
), finish AS MATERIALIZED (
    SELECT start.cell + $2::bigint - 1 + coalesce((
        SELECT max(taken) FROM run WHERE last_cell + 1 - start.cell - taken < $2), 0) AS cell
    FROM start
), stretch AS (
    SELECT s.*,
        (greatest(s.first_cell, start.cell) - s.first_cell + base) / capacity AS first_window,
        (least(s.last_cell, finish.cell) - s.first_cell + base) / capacity AS last_window,
        -- The fewest cells of any window: a window at an end of the stretch may be partial.
        least(capacity, s.last_cell - s.first_cell + 1,
            CASE WHEN s.first_cell > start.cell THEN capacity - base % capacity END,
            CASE WHEN s.last_cell < finish.cell
                THEN (s.last_cell - s.first_cell + base) % capacity + 1 END) AS cells_min
    FROM start, finish, penstock.slot_stretch AS s
    WHERE s.pool_id = start.pool_id AND s.last_cell >= start.cell AND s.first_cell <= finish.cell
), opened AS MATERIALIZED (
    -- Windows are numbered across stretches; two stretches share a window that is partly closed.
    SELECT stretch.*, sum(last_window - first_window + is_new::integer)
        OVER (ORDER BY first_cell ROWS UNBOUNDED PRECEDING)::bigint - last_window AS windows_before
    FROM (
        SELECT stretch.*, first_window * window_us IS DISTINCT FROM
            lag(last_window * window_us) OVER (ORDER BY first_cell) AS is_new
        FROM stretch
    ) AS stretch
), full_up AS (
    -- The cells just before and after a run are free; the windows between those two are full.
    SELECT sum(greatest(0, behind.windows_before - before.windows_before - 1
        + (run.last_cell + 1 - behind.first_cell + behind.base) / behind.capacity
        - (run.first_cell - 1 - before.first_cell + before.base) / before.capacity)) AS windows
    FROM penstock.slot_run AS run
    JOIN opened AS before ON run.first_cell - 1 BETWEEN before.first_cell AND before.last_cell
    JOIN opened AS behind ON run.last_cell + 1 BETWEEN behind.first_cell AND behind.last_cell
    WHERE run.pool_id = (SELECT pool_id FROM start)
        AND run.first_cell > (SELECT cell FROM start)
        AND run.last_cell < (SELECT cell FROM finish)
        AND run.last_cell - run.first_cell >= (SELECT min(cells_min) FROM opened) - 1
)
SELECT penstock.cell_at(start.pool_id, start.cell) AS first_at,
    penstock.cell_at(start.pool_id, finish.cell) AS last_at,
    ((SELECT max(windows_before + last_window) FROM opened) - coalesce(full_up.windows, 0))::bigint
        AS windows
FROM start, finish, full_up;
