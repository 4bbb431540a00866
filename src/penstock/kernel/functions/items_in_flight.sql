-- Count the items of a lane that workers hold. VOLATILE, so that it has a snapshot of its own: a
-- claim calls it after locking the lane, and must see the leases that were committed while it
-- waited for the lock.
CREATE OR REPLACE FUNCTION penstock.items_in_flight(of_lane_id integer) RETURNS bigint
LANGUAGE sql VOLATILE AS $$
    SELECT coalesce(sum(cardinality(item_ids)), 0) FROM penstock.lease WHERE lane_id = of_lane_id
$$;
