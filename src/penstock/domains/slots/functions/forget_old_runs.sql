-- Delete runs whose cells ended a week ago: they are not read again, and must not accumulate.
CREATE OR REPLACE FUNCTION penstock.forget_old_runs(in_pool integer, now_at timestamptz)
RETURNS void
LANGUAGE sql AS $$
    DELETE FROM penstock.slot_run
    USING (
        SELECT penstock.first_cell_at(in_pool, now_at - interval '168 hours') AS cell
    ) AS oldest
    WHERE pool_id = in_pool AND first_cell < oldest.cell AND last_cell < oldest.cell
$$;
