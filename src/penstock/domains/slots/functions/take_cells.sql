-- Take free cells for several groups of requests and return them as spans: each group gets up to as
-- many as it wants, the earliest ones of its [from_cell, until_cell). The arrays are parallel, in
-- the order of service, which is fastest by ascending from_cell; the members of a group have ranks
-- from `ranks` on. The caller has locked the pool's row.
-- The current run is written when it is complete: a row that is updated again and again in one
-- transaction gets slower each time.
CREATE OR REPLACE FUNCTION penstock.take_cells(
    in_pool integer, ranks bigint[], from_cells bigint[], until_cells bigint[], counts bigint[]
) RETURNS TABLE (rank bigint, cell bigint, cells bigint)
LANGUAGE plpgsql AS $$
DECLARE
    request_group record;
    wanted bigint;
    growing bigint;  -- The first cell of the current run,
    next_cell bigint;  -- and the one after its last.
    is_grown boolean := false;
    following penstock.slot_run;  -- The run after it; the last one is followed by a row of NULLs.
    is_sighted boolean := false;  -- Whether `following` has been looked up.
BEGIN
    FOR request_group IN
        SELECT * FROM unnest(ranks, from_cells, until_cells, counts) AS p (rank, low, high, wanted)
    LOOP
        IF next_cell IS NULL OR request_group.low > next_cell OR request_group.low < growing THEN
            IF is_grown THEN
                PERFORM penstock.keep_run(in_pool, growing, next_cell - 1);
                is_grown := false;
            END IF;
            -- A request past its day's cut-off may start before requests of the day's later
            -- part, if that part has another cut-off.
            IF request_group.low < growing THEN
                is_sighted := false;
            END IF;
            growing := request_group.low;
            next_cell := request_group.low;
            IF NOT is_sighted OR following.first_cell <= request_group.low THEN
                is_sighted := false;
                SELECT r.first_cell, r.last_cell + 1 INTO growing, next_cell
                FROM penstock.slot_run AS r
                WHERE r.pool_id = in_pool AND r.first_cell <= request_group.low
                ORDER BY r.first_cell DESC
                LIMIT 1;
                IF next_cell IS NULL OR next_cell < request_group.low THEN
                    growing := request_group.low;
                    next_cell := request_group.low;
                END IF;
            END IF;
        END IF;

        rank := request_group.rank;
        wanted := request_group.wanted;
        WHILE wanted > 0 AND next_cell < request_group.high LOOP
            IF NOT is_sighted THEN
                SELECT * INTO following
                FROM penstock.slot_run AS r
                WHERE r.pool_id = in_pool AND r.first_cell > next_cell
                ORDER BY r.first_cell
                LIMIT 1;
                is_sighted := true;
            END IF;
            cell := next_cell;
            cells := least(wanted, request_group.high - next_cell, following.first_cell - next_cell);
            RETURN NEXT;
            is_grown := true;
            rank := rank + cells;
            wanted := wanted - cells;
            next_cell := next_cell + cells;
            IF next_cell = following.first_cell THEN
                DELETE FROM penstock.slot_run AS r
                WHERE r.pool_id = in_pool AND r.first_cell = following.first_cell;
                next_cell := following.last_cell + 1;
                is_sighted := false;
            END IF;
        END LOOP;
    END LOOP;
    IF is_grown THEN
        PERFORM penstock.keep_run(in_pool, growing, next_cell - 1);
    END IF;
END $$;
