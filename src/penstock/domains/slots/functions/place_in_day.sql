-- Return where in the days of a pool an instant is: the first cell at or after it; the first cell
-- after its day, which is the day of the stretch that contains it or of the next one; and whether
-- it is past the day's cut-off. No row where the pool's calendar has ended.
CREATE OR REPLACE FUNCTION penstock.place_in_day(in_pool integer, at timestamptz)
RETURNS TABLE (cell bigint, day_end bigint, policy text, is_late boolean)
LANGUAGE sql STABLE ROWS 1 AS $$
    SELECT
        CASE
            WHEN at <= starts_at THEN first_cell
            ELSE first_cell - base
                + penstock.cells_before(penstock.to_micros(at), window_us, capacity)
        END,
        CASE WHEN day IS NOT NULL THEN (
            SELECT max(last_cell) + 1 FROM penstock.slot_stretch AS same
            WHERE same.pool_id = in_pool AND same.day = stretch.day
                AND same.ends_at >= stretch.ends_at
                AND same.ends_at < stretch.ends_at + interval '48 hours')
        END,
        cut_off_policy, cut_off_at <= at
    FROM penstock.slot_stretch AS stretch
    WHERE pool_id = in_pool AND ends_at > at
    ORDER BY ends_at
    LIMIT 1
$$;
