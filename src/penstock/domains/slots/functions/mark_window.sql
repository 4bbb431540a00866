-- Run mark_cells for the one window that contains an instant; closed time has none.
CREATE OR REPLACE FUNCTION penstock.mark_window(in_pool integer, at timestamptz) RETURNS void
LANGUAGE sql AS $$
    SELECT penstock.mark_cells(
        in_pool,
        greatest(penstock.from_micros(window_start), starts_at),
        least(penstock.from_micros(window_start + window_us), ends_at))
    FROM penstock.slot_stretch
    CROSS JOIN LATERAL (
        SELECT penstock.to_micros(at) / window_us * window_us AS window_start
    ) AS w
    WHERE pool_id = in_pool AND ends_at > at AND starts_at <= at
$$;
