-- Give dead items another set of attempts, now, or when they are due if that is later: an operator
-- can end an item before it is due. An item that blocks its key becomes its head again; any
-- other takes its old position behind the key ('park') or the last one ('skip'). Items past their
-- deadline stay dead: they would only expire again. Returns the ids of the replayed items.
CREATE OR REPLACE FUNCTION penstock.replay_dead(ids bigint[], at timestamptz) RETURNS SETOF bigint
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    risen record;
BEGIN
    FOR risen IN
        WITH risen AS (
            DELETE FROM penstock.dead USING penstock.item
            WHERE dead.id = ANY (ids) AND item.id = dead.id
                AND (item.not_after IS NULL OR item.not_after > replay_dead.at)
            RETURNING dead.id, dead.lane_id, dead.attempt, item.order_key,
                greatest(dead.due_at, replay_dead.at) AS due_at
        ), noted AS (
            INSERT INTO penstock.moved (item_id, due_at) SELECT id, due_at FROM risen
            ON CONFLICT DO NOTHING
        ), unblocked AS (
            UPDATE penstock.active_key SET blocked_by = NULL
            FROM risen
            WHERE active_key.lane_id = risen.lane_id AND active_key.blocked_by = risen.id
                AND active_key.order_key = risen.order_key
            RETURNING risen.id
        ), numbered AS MATERIALIZED (
            -- Items that go to the end keep their own order, not that of the plan.
            SELECT sorted.*, nextval('penstock.item_id') AS last
            FROM (SELECT * FROM risen ORDER BY id) AS sorted
        ), placed AS (
            SELECT numbered.*, lane.ordering = 'per_key' AND numbered.order_key IS NOT NULL
                AND NOT EXISTS (SELECT FROM unblocked WHERE unblocked.id = numbered.id) AS lines_up,
                CASE lane.on_dead_head WHEN 'skip' THEN last ELSE numbered.id END AS position
            FROM numbered JOIN penstock.lane USING (lane_id)
        ), readied AS (
            INSERT INTO penstock.ready (due_at, id, lane_id, attempt, forgiven)
            SELECT due_at, id, lane_id, attempt, attempt FROM placed WHERE NOT lines_up
        )
        SELECT lane_id, array_agg(id) AS all_ids,
            array_agg(id) FILTER (WHERE lines_up) AS ids,
            array_agg(order_key) FILTER (WHERE lines_up) AS order_keys,
            array_agg(position) FILTER (WHERE lines_up) AS positions,
            array_agg(due_at) FILTER (WHERE lines_up) AS due_ats,
            array_agg(attempt) FILTER (WHERE lines_up) AS attempts
        FROM placed
        GROUP BY lane_id
    LOOP
        IF risen.ids IS NOT NULL THEN
            PERFORM penstock.line_up(risen.lane_id, risen.ids, risen.order_keys, risen.positions,
                risen.due_ats, risen.attempts, risen.attempts);
        END IF;
        PERFORM pg_notify('penstock', risen.lane_id::text);
        RETURN QUERY SELECT unnest(risen.all_ids);
    END LOOP;
END $$;
