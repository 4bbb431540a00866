-- Write a run of taken cells: a new one, or an existing one that has grown.
CREATE OR REPLACE FUNCTION penstock.keep_run(in_pool integer, low bigint, high bigint) RETURNS void
LANGUAGE sql AS $$
    INSERT INTO penstock.slot_run (pool_id, first_cell, last_cell) VALUES (in_pool, low, high)
    ON CONFLICT (pool_id, first_cell) DO UPDATE SET last_cell = excluded.last_cell
$$;
