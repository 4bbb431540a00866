-- Append opening periods to a pool whose calendar is extended, and count the slots that are already
-- booked there, from when the calendar reached further ahead.
CREATE OR REPLACE FUNCTION penstock.extend_stretches(
    for_config integer, starts timestamptz[], ends timestamptz[], days date[], cut_offs timestamptz[]
) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM penstock.add_stretches(for_config, starts, ends, days, cut_offs);
    PERFORM penstock.mark_cells(pool_id, starts[1], timestamptz '2200-01-01Z')
    FROM penstock.slot_config
    WHERE config_id = for_config;
END $$;
