-- Free one cell; a cell that is not taken stays as it is. The caller has locked the pool's row.
CREATE OR REPLACE FUNCTION penstock.free_cell(in_pool integer, freed bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    run penstock.slot_run;
BEGIN
    SELECT * INTO run FROM penstock.slot_run
    WHERE pool_id = in_pool AND first_cell <= freed
    ORDER BY first_cell DESC
    LIMIT 1;
    IF run.last_cell IS NULL OR run.last_cell < freed THEN
        RETURN;
    END IF;
    IF run.first_cell < freed THEN
        UPDATE penstock.slot_run SET last_cell = freed - 1
        WHERE pool_id = in_pool AND first_cell = run.first_cell;
    ELSE
        DELETE FROM penstock.slot_run WHERE pool_id = in_pool AND first_cell = run.first_cell;
    END IF;
    IF run.last_cell > freed THEN
        INSERT INTO penstock.slot_run (pool_id, first_cell, last_cell)
        VALUES (in_pool, freed + 1, run.last_cell);
    END IF;
END $$;
