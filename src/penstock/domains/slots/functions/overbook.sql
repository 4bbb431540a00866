-- Book above capacity in the day of a time, at or after it: beside a cell that a hash of the
-- event's name picks, or, where no cell of the day is left, from the time itself on. The caller
-- has locked the pool's row.
CREATE OR REPLACE FUNCTION penstock.overbook(
    in_pool integer, event text, wanted_at timestamptz, now_at timestamptz
) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    micros bigint := penstock.to_micros(greatest(wanted_at, now_at));
    choice bigint := ('x' || substr(md5(event), 1, 8))::bit(32)::bigint;
    -- Of all versions: the same instant may be taken as a position in another window.
    window_sizes bigint[] := ARRAY(
        SELECT DISTINCT (extract(epoch FROM window_size) * 1000000)::bigint
        FROM penstock.slot_config
        WHERE pool_id = in_pool);
    place record;
    chosen record;
BEGIN
    SELECT * INTO place FROM penstock.place_in_day(in_pool, greatest(wanted_at, now_at));
    SELECT * INTO chosen
    FROM penstock.span_places(
        in_pool, ARRAY[1::bigint],
        -- Where no cell of the day is left, its last cell gives the window's size.
        ARRAY[least(place.cell + choice % greatest(place.day_end - place.cell, 1), place.day_end - 1)],
        ARRAY[1::bigint]);
    IF place.day_end > place.cell THEN
        micros := chosen.window_start + chosen.offset_us + 1;
    END IF;
    WHILE EXISTS (
        SELECT FROM unnest(window_sizes) AS size
        JOIN penstock.slot ON pool_id = in_pool AND position = micros % size
            AND window_at = penstock.from_micros(micros / size * size)
    ) LOOP
        micros := micros + 1;
    END LOOP;
    INSERT INTO penstock.slot (
        requested_at, scheduled_at, window_at, position, created_at, pool_id, config_id, event_id)
    VALUES (
        wanted_at, penstock.from_micros(micros),
        penstock.from_micros(micros / chosen.window_us * chosen.window_us),
        micros % chosen.window_us, now_at, in_pool, chosen.config_id, event)
    ON CONFLICT ON CONSTRAINT event_has_one_slot DO NOTHING;
    UPDATE penstock.slot_pool
    SET mixed_until = greatest(mixed_until, penstock.from_micros(micros + chosen.window_us))
    WHERE pool_id = in_pool;
    PERFORM penstock.mark_window(in_pool, penstock.from_micros(micros));
END $$;
