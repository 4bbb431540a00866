-- Delete the order keys of a lane whose ordering changes. Items are parked when they are enqueued,
-- so unfinished ones forbid the change: PS409.
CREATE OR REPLACE FUNCTION penstock.reset_order(policy penstock.lane) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM penstock.ready WHERE lane_id = policy.lane_id)
        OR EXISTS (SELECT FROM penstock.parked WHERE lane_id = policy.lane_id)
        OR EXISTS (SELECT FROM penstock.lease WHERE lane_id = policy.lane_id)
        OR EXISTS (SELECT FROM penstock.held WHERE lane_id = policy.lane_id)
    THEN
        RAISE EXCEPTION 'lane % has unfinished items; ordering can change once it is empty',
            quote_literal(policy.name)
            USING ERRCODE = 'PS409', DETAIL = jsonb_build_object(
                'lane', policy.name, 'field', 'ordering')::text;
    END IF;
    -- Those that a dead item blocks, and those that the sweeper has to look at again.
    DELETE FROM penstock.active_key WHERE lane_id = policy.lane_id;
    DELETE FROM penstock.vacated_key WHERE lane_id = policy.lane_id;
END $$;
