-- Return the first cell of a pool at or after an instant; NULL where the pool's calendar has ended.
CREATE OR REPLACE FUNCTION penstock.first_cell_at(in_pool integer, at timestamptz) RETURNS bigint
LANGUAGE sql STABLE AS $$
    SELECT CASE
        WHEN at <= starts_at THEN first_cell
        ELSE first_cell - base + penstock.cells_before(penstock.to_micros(at), window_us, capacity)
    END
    FROM penstock.slot_stretch
    WHERE pool_id = in_pool AND ends_at > at
    ORDER BY ends_at
    LIMIT 1
$$;
