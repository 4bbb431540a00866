-- Drop a day's partitions once every lane that has items in them allows it. Rows of items that are
-- not finished, that are held or dead, or that ended within their lane's retention move to the
-- default partitions first; if those are more than a tenth of the day, the day is kept for now.
-- Runs as its owner, because only the owner of a table may drop it; the caller may delete its rows.
CREATE OR REPLACE FUNCTION penstock.drop_day(day date, at timestamptz) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    low bigint := (day - date '1970-01-01')::bigint << 32;
    high bigint := (day + 1 - date '1970-01-01')::bigint << 32;
    suffix text := to_char(day, 'YYYYMMDD');
    items bigint;
    is_due boolean;
BEGIN
    IF NOT has_table_privilege(session_user, 'penstock.item', 'DELETE') THEN
        RAISE insufficient_privilege USING MESSAGE = 'to drop a day needs DELETE on penstock.item';
    END IF;
    SELECT count(*) INTO items FROM penstock.item WHERE id >= low AND id < high;
    SELECT day + 1 <= (drop_day.at - coalesce(max(retention), '0')) AT TIME ZONE 'UTC' INTO is_due
    FROM penstock.lane
    WHERE lane_id IN (SELECT lane_id FROM penstock.item WHERE id >= low AND id < high);
    IF NOT is_due THEN
        RETURN false;
    END IF;

    CREATE TEMPORARY TABLE penstock_kept ON COMMIT DROP AS
    SELECT id FROM penstock.ready WHERE id >= low AND id < high
    UNION SELECT id FROM penstock.parked WHERE id >= low AND id < high
    UNION SELECT unnest(item_ids) FROM penstock.lease
    UNION SELECT id FROM penstock.held WHERE id >= low AND id < high
    UNION SELECT id FROM penstock.dead WHERE id >= low AND id < high
    UNION SELECT item_id FROM penstock.attempt JOIN penstock.lane USING (lane_id)
        WHERE item_id >= low AND item_id < high AND settled_at > drop_day.at - lane.retention
    UNION SELECT id FROM penstock.cancelled JOIN penstock.lane USING (lane_id)
        WHERE id >= low AND id < high AND cancelled_at > drop_day.at - lane.retention;
    DELETE FROM penstock_kept WHERE id < low OR id >= high;
    IF (SELECT count(*) FROM penstock_kept) * 10 > items THEN
        DROP TABLE penstock_kept;
        RETURN false;
    END IF;

    -- Detaching waits for every reader; behind a long one, give up and try again later.
    PERFORM set_config('lock_timeout', '2s', true);
    EXECUTE format('ALTER TABLE penstock.item DETACH PARTITION penstock.item_%s', suffix);
    EXECUTE format('ALTER TABLE penstock.attempt DETACH PARTITION penstock.attempt_%s', suffix);
    EXECUTE format(
        'INSERT INTO penstock.item SELECT i.* FROM penstock.item_%s AS i JOIN penstock_kept USING (id)',
        suffix);
    EXECUTE format(
        'INSERT INTO penstock.attempt SELECT a.* FROM penstock.attempt_%s AS a '
        'JOIN penstock_kept ON penstock_kept.id = a.item_id', suffix);
    DELETE FROM penstock.cancelled
    WHERE id >= low AND id < high AND id NOT IN (SELECT id FROM penstock_kept);
    DELETE FROM penstock.late_result
    WHERE item_id >= low AND item_id < high AND item_id NOT IN (SELECT id FROM penstock_kept);
    DELETE FROM penstock.moved
    WHERE item_id >= low AND item_id < high AND item_id NOT IN (SELECT id FROM penstock_kept);
    EXECUTE format('DROP TABLE penstock.item_%s, penstock.attempt_%s', suffix, suffix);
    DROP TABLE penstock_kept;
    RETURN true;
END $$;
