-- Change the due instants of unclaimed items; they keep their positions behind their order keys. An
-- item that a transaction holds, that waits for a retry or that a person has rescheduled is no
-- longer due when its slot was, and is left unchanged. A held item is due then once it is released.
-- A domain that keeps the instants of its items gets those that have moved, with
-- note_moved_instants, which is looked up only here: the kernel can be installed without domains.
CREATE OR REPLACE FUNCTION penstock.move_due_instants(
    item_ids bigint[], from_ats timestamptz[], to_ats timestamptz[]
) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    moved_ids bigint[];
    moved_ats timestamptz[];
BEGIN
    WITH subject AS MATERIALIZED (
        SELECT item.id, item.lane_id, item.order_key, given.from_at, given.to_at
        FROM unnest(item_ids, from_ats, to_ats) AS given (id, from_at, to_at)
        CROSS JOIN LATERAL (
            SELECT id, lane_id, order_key FROM penstock.item WHERE item.id = given.id LIMIT 1
        ) AS item
    ), ready_place AS MATERIALIZED (
        SELECT subject.to_at, found.ctid AS place
        FROM subject
        CROSS JOIN LATERAL (
            SELECT ctid FROM penstock.ready
            WHERE lane_id = subject.lane_id AND due_at = subject.from_at AND id = subject.id
            LIMIT 1
            FOR UPDATE SKIP LOCKED
        ) AS found
    ), rescheduled AS (
        UPDATE penstock.ready SET due_at = ready_place.to_at
        FROM ready_place
        WHERE ready.ctid = ready_place.place
        RETURNING ready.id, ready.due_at
    ), parked_place AS MATERIALIZED (
        SELECT subject.to_at, found.ctid AS place
        FROM subject
        CROSS JOIN LATERAL (
            SELECT ctid FROM penstock.parked
            WHERE lane_id = subject.lane_id AND order_key = subject.order_key AND id = subject.id
                AND due_at = subject.from_at
            LIMIT 1
            FOR UPDATE SKIP LOCKED
        ) AS found
    ), parked AS (
        UPDATE penstock.parked SET due_at = parked_place.to_at
        FROM parked_place
        WHERE parked.ctid = parked_place.place
        RETURNING parked.id, parked.due_at
    ), held_place AS MATERIALIZED (
        SELECT subject.to_at, found.ctid AS place
        FROM subject
        CROSS JOIN LATERAL (
            SELECT ctid FROM penstock.held
            WHERE id = subject.id AND due_at = subject.from_at
            LIMIT 1
            FOR UPDATE SKIP LOCKED
        ) AS found
    ), held AS (
        UPDATE penstock.held SET due_at = held_place.to_at
        FROM held_place
        WHERE held.ctid = held_place.place
        RETURNING held.id, held.due_at
    ), kept AS (
        INSERT INTO penstock.moved (item_id, due_at)
        SELECT id, due_at FROM rescheduled UNION ALL SELECT id, due_at FROM parked
        ON CONFLICT DO NOTHING
    )
    SELECT array_agg(id), array_agg(due_at) INTO moved_ids, moved_ats
    FROM (
        SELECT id, due_at FROM rescheduled
        UNION ALL
        SELECT id, due_at FROM parked
        UNION ALL
        SELECT id, due_at FROM held
    ) AS moved;
    IF moved_ids IS NOT NULL
        AND to_regprocedure('penstock.note_moved_instants(bigint[], timestamptz[])') IS NOT NULL
    THEN
        PERFORM penstock.note_moved_instants(moved_ids, moved_ats);
    END IF;
END $$;
