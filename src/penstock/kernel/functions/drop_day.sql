-- Apply retention to one day. If few of its items must be kept, they move to the default partitions
-- and the day's partitions are dropped: this returns true. If they are many, the lanes whose
-- retention is over are noted, for the sweeper to trim from the day in batches. Kept are items that
-- are not finished, that are held or dead, or that ended within their lane's retention. Rows of
-- domains that belong to items, as daily_table says, stay and leave with their item.
-- Runs as its owner, because only the owner of a table may drop it; the caller may delete its rows.
CREATE OR REPLACE FUNCTION penstock.drop_day(day date, at timestamptz) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    low bigint := (day - date '1970-01-01')::bigint << 32;
    high bigint := (day + 1 - date '1970-01-01')::bigint << 32;
    suffix text := to_char(day, 'YYYYMMDD');
    known penstock.history_day;
    due_lanes integer[];
    lanes integer[];
    items bigint;
    items_now bigint;
    moved_max bigint;
    belonging record;
BEGIN
    IF NOT has_table_privilege(session_user, 'penstock.item', 'DELETE') THEN
        RAISE insufficient_privilege USING MESSAGE = 'to drop a day needs DELETE on penstock.item';
    END IF;
    -- Not beside another caller, nor beside open_day: each reads the tables before it locks them,
    -- and two would wait for each other.
    IF NOT pg_try_advisory_xact_lock(hashtextextended('penstock.open_day', 0)) THEN
        RETURN false;
    END IF;
    -- No row: another caller has dropped the day, or a sweeper is trimming it.
    SELECT * INTO known FROM penstock.history_day AS h
    WHERE h.day = drop_day.day
    FOR UPDATE SKIP LOCKED;
    -- While no sweeper ran, ids have stayed in an old day: it is not over.
    IF NOT FOUND OR (SELECT last_value FROM penstock.item_id) < high THEN
        RETURN false;
    END IF;
    UPDATE penstock.history_day AS h SET look_at = drop_day.at + interval '1 day'
    WHERE h.day = drop_day.day;

    due_lanes := ARRAY(
        SELECT lane_id FROM penstock.lane
        WHERE drop_day.day + 1 <= (drop_day.at - retention) AT TIME ZONE 'UTC');
    IF known.waiting_lanes = '{}' AND known.trimmed_lanes IS NULL THEN
        -- Every lane was trimmed from the day, so the items that are left must be kept. 10,000 of
        -- them are moved in a third of a second.
        SELECT count(*) INTO items
        FROM (SELECT FROM penstock.item WHERE id >= low AND id < high LIMIT 10001) AS i;
        IF items > 10000 THEN
            RETURN false;
        END IF;
        moved_max := items;
    ELSIF NOT (known.waiting_lanes IS NULL OR known.waiting_lanes && due_lanes)
        OR due_lanes = '{}' AND EXISTS (SELECT FROM penstock.item WHERE id >= low AND id < high)
    THEN
        RETURN false;
    ELSE
        SELECT coalesce(sum(n), 0), coalesce(array_agg(lane_id), '{}') INTO items, lanes
        FROM (
            SELECT lane_id, count(*) AS n FROM penstock.item WHERE id >= low AND id < high
            GROUP BY lane_id
        ) AS by_lane;
        -- More than a tenth would cost more than it frees; 50,000 are moved in one or two seconds,
        -- in which nothing else can read or write items.
        moved_max := least(items / 10, 50000);
    END IF;

    CREATE TEMPORARY TABLE penstock_kept ON COMMIT DROP AS
    SELECT examined.id, lane_id, coalesce(examined.ended_at, drop_day.at) AS from_at
    FROM (
        -- Grouped instead of joined, because statistics may be stale.
        SELECT id, max(lane_id) AS lane_id, max(ended_at) AS ended_at
        FROM (
            SELECT id, lane_id, NULL::timestamptz AS ended_at
            FROM penstock.item
            WHERE id >= low AND id < high
            UNION ALL
            SELECT item_id, NULL, ended_at
            FROM penstock.ending
            WHERE item_id >= low AND item_id < high
        ) AS found
        GROUP BY id
    ) AS examined
    JOIN penstock.lane USING (lane_id)
    WHERE examined.ended_at IS NULL OR examined.ended_at > drop_day.at - lane.retention
    LIMIT moved_max + 1;
    IF (SELECT count(*) FROM penstock_kept) > moved_max THEN
        UPDATE penstock.history_day AS h
        SET waiting_lanes = ARRAY(SELECT unnest(lanes) EXCEPT SELECT unnest(due_lanes)),
            trimmed_lanes = CASE WHEN lanes && due_lanes
                THEN ARRAY(SELECT unnest(lanes) INTERSECT SELECT unnest(due_lanes)) END,
            next_id = CASE WHEN lanes && due_lanes THEN low END
        WHERE h.day = drop_day.day;
        DROP TABLE penstock_kept;
        RETURN false;
    END IF;

    -- These need no lock on the partitions, so they come before it is taken.
    DELETE FROM penstock.cancelled AS c
    WHERE id >= low AND id < high AND NOT EXISTS (SELECT FROM penstock_kept WHERE id = c.id);
    DELETE FROM penstock.late_result AS r
    WHERE item_id >= low AND item_id < high
        AND NOT EXISTS (SELECT FROM penstock_kept WHERE id = r.item_id);
    DELETE FROM penstock.moved AS m
    WHERE item_id >= low AND item_id < high
        AND NOT EXISTS (SELECT FROM penstock_kept WHERE id = m.item_id);
    DELETE FROM penstock.retained_item WHERE id >= low AND id < high;
    INSERT INTO penstock.retained_item (id, from_at, lane_id)
    SELECT id, from_at, lane_id FROM penstock_kept;
    DELETE FROM penstock.history_day AS h WHERE h.day = drop_day.day;

    -- Detaching waits for every reader; behind a long one, give up and try again later.
    PERFORM set_config('lock_timeout', '2s', true);
    EXECUTE format('ALTER TABLE penstock.item DETACH PARTITION penstock.item_%s', suffix);
    EXECUTE format('ALTER TABLE penstock.attempt DETACH PARTITION penstock.attempt_%s', suffix);
    EXECUTE format('SELECT count(*) FROM penstock.item_%s', suffix) INTO items_now;
    IF items_now <> items THEN
        -- A long transaction has accepted an item since the items were counted.
        RAISE lock_not_available USING MESSAGE = 'items of the day have just been accepted';
    END IF;
    EXECUTE format(
        'INSERT INTO penstock.item SELECT i.* FROM penstock.item_%s AS i JOIN penstock_kept USING (id)',
        suffix);
    EXECUTE format(
        'INSERT INTO penstock.attempt SELECT a.* FROM penstock.attempt_%s AS a '
        'JOIN penstock_kept ON penstock_kept.id = a.item_id', suffix);
    EXECUTE format('DROP TABLE penstock.item_%s, penstock.attempt_%s', suffix, suffix);
    -- After item, as producers lock them; one that waits for item holds none of these.
    FOR belonging IN
        SELECT name, item_column, name || '_' || suffix AS partition,
            to_regclass('penstock.' || quote_ident(name || '_' || suffix)) IS NOT NULL AS is_daily
        FROM penstock.daily_table
        WHERE item_column IS NOT NULL
        ORDER BY name
    LOOP
        IF belonging.is_daily THEN
            EXECUTE format('ALTER TABLE penstock.%I DETACH PARTITION penstock.%I',
                belonging.name, belonging.partition);
            EXECUTE format(
                'INSERT INTO penstock.%I SELECT d.* FROM penstock.%I AS d '
                'JOIN penstock_kept ON penstock_kept.id = d.%I',
                belonging.name, belonging.partition, belonging.item_column);
            EXECUTE format('DROP TABLE penstock.%I', belonging.partition);
        ELSE
            -- The day is older than the table.
            EXECUTE format(
                'DELETE FROM penstock.%1$I AS d WHERE %2$I >= $1 AND %2$I < $2 '
                'AND NOT EXISTS (SELECT FROM penstock_kept WHERE id = d.%2$I)',
                belonging.name, belonging.item_column) USING low, high;
        END IF;
    END LOOP;
    DROP TABLE penstock_kept;
    RETURN true;
END $$;
