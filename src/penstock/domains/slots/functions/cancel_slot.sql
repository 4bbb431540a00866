-- Cancel an event's slot. Returns true if this call cancelled it; the slot is recorded in
-- slot_cancelled, and the event may be assigned another one.
CREATE OR REPLACE FUNCTION penstock.cancel_slot(event text, who text, at timestamptz DEFAULT NULL)
RETURNS boolean
LANGUAGE plpgsql
SET enable_seqscan = off
AS $$
DECLARE
    this penstock.slot_pool;
    gone penstock.slot;
    place_at timestamptz;
BEGIN
    SELECT pool.* INTO this FROM penstock.slot JOIN penstock.slot_pool AS pool USING (pool_id)
    WHERE slot.event_id = event
    FOR NO KEY UPDATE OF pool;
    DELETE FROM penstock.slot
    WHERE slot.event_id = event AND pool_id = this.pool_id
    RETURNING * INTO gone;
    IF gone.event_id IS NULL THEN
        RETURN false;
    END IF;
    INSERT INTO penstock.slot_cancelled (
        cancelled_at, requested_at, scheduled_at, created_at, pool_id, config_id, event_id,
        cancelled_by)
    VALUES (
        coalesce(at, clock_timestamp()), gone.requested_at, gone.scheduled_at, gone.created_at,
        gone.pool_id, gone.config_id, gone.event_id, who);

    place_at := penstock.from_micros(penstock.to_micros(gone.window_at) + gone.position);
    IF gone.window_at >= this.mixed_until THEN
        PERFORM penstock.free_cell(
            this.pool_id, penstock.first_cell_at(this.pool_id, place_at));
    ELSE
        PERFORM penstock.mark_window(this.pool_id, place_at);
    END IF;
    RETURN true;
END $$;
