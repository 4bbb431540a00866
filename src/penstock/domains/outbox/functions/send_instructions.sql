-- Accept payment instructions in the caller's transaction. The arrays are parallel; a NULL
-- next_attempt_at means now, a NULL outbox_id a new one; `whos` are who sends each, if not all are sent by
-- `who`. Returns one row per position: is_new is false
-- where the instruction and its key are already known. Raises PS409 with both hashes for another payload,
-- and for an instruction that is known under another key; without `raises`, the conflict is in its row
-- instead, and the other instructions are accepted. Raises 22023 for an amount that is not exact.
-- The order of steps matters: participants are locked before keys, as a producer does that takes a number
-- with bump_participant_outbox_seq and then inserts, and both in sorted order, so that two producers
-- cannot deadlock. Numbers are taken for all, and those of instructions that are known are given back
-- under the same lock, so that a repeat or a conflict leaves no gap. Numbers are taken before items, so
-- that items of a participant have the order of their numbers.
CREATE OR REPLACE FUNCTION penstock.send_instructions(
    instruction_ids text[],
    participant_ids text[],
    idempotency_keys text[],
    rail_types text[],
    payloads jsonb[],
    next_attempt_ats timestamptz[] DEFAULT NULL,
    outbox_ids uuid[] DEFAULT NULL,
    at timestamptz DEFAULT now(),
    who text DEFAULT 'sql:' || session_user,
    raises boolean DEFAULT true,
    whos text[] DEFAULT NULL
) RETURNS TABLE (index bigint, outbox_id uuid, sequence_id bigint, is_new boolean, conflict jsonb)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    amounts numeric[];
    ids uuid[];
    are_new boolean[];
    hashes bytea[];
    locked text[];
    firsts bigint[];
    sequence_ids bigint[];
    conflicts jsonb[];
    refused record;
    known record;
BEGIN
    amounts := ARRAY(SELECT penstock.outbox_amount(g.payload) FROM unnest(payloads) AS g (payload));
    SELECT g.index, penstock.outbox_fault(g.payload, g.amount) AS fault INTO refused
    FROM unnest(payloads, amounts) WITH ORDINALITY AS g (payload, amount, index)
    WHERE penstock.outbox_fault(g.payload, g.amount) IS NOT NULL
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION '%', refused.fault USING ERRCODE = 'invalid_parameter_value',
            DETAIL = jsonb_build_object('index', refused.index - 1)::text;
    END IF;

    SELECT array_agg(taken.participant_id), array_agg(taken.first_sequence_id) INTO locked, firsts
    FROM penstock.bump_participants(participant_ids) AS taken;

    WITH given AS MATERIALIZED (
        SELECT u.index, u.instruction_id, u.idempotency_key,
            coalesce(u.outbox_id, u.new_id) AS outbox_id,
            penstock.outbox_hash(u.participant_id, u.rail_type, u.payload) AS payload_hash
        FROM unnest(
            instruction_ids, participant_ids, idempotency_keys, rail_types, payloads, outbox_ids,
            penstock.uuids_v7(cardinality(instruction_ids))
        ) WITH ORDINALITY
            AS u (instruction_id, participant_id, idempotency_key, rail_type, payload, outbox_id, new_id,
                index)
    ), fresh AS (
        INSERT INTO penstock.outbox_idempotency (
            instruction_id, idempotency_key, generation, outbox_id, payload_hash)
        SELECT instruction_id, idempotency_key, 1, outbox_id, payload_hash
        FROM given
        ORDER BY instruction_id, idempotency_key, index
        ON CONFLICT DO NOTHING
        RETURNING outbox_id
    )
    SELECT array_agg(given.outbox_id ORDER BY index),
        array_agg(fresh.outbox_id IS NOT NULL ORDER BY index), array_agg(payload_hash ORDER BY index)
    INTO ids, are_new, hashes
    FROM given LEFT JOIN fresh ON fresh.outbox_id = given.outbox_id;

    IF false = ANY (are_new) THEN
        conflicts := array_fill(NULL::jsonb, ARRAY[cardinality(ids)]);
        FOR known IN
            SELECT g.index, r.*
            FROM (
                SELECT u.*
                FROM unnest(instruction_ids, idempotency_keys, hashes, ids, are_new) WITH ORDINALITY
                    AS u (instruction_id, idempotency_key, payload_hash, outbox_id, is_new, index)
                WHERE NOT u.is_new
                ORDER BY u.instruction_id, u.idempotency_key, u.index
            ) AS g
            CROSS JOIN LATERAL penstock.repeat_instruction(
                g.instruction_id, g.idempotency_key, g.payload_hash, g.outbox_id) AS r
        LOOP
            IF known.conflict IS NOT NULL AND raises THEN
                RAISE EXCEPTION 'instruction % is already known % key %',
                    quote_literal(known.conflict ->> 'instruction_id'),
                    CASE WHEN known.conflict ->> 'stored_key' = known.conflict ->> 'idempotency_key'
                        THEN 'with another payload under' ELSE 'under' END,
                    quote_literal(known.conflict ->> 'stored_key')
                    USING ERRCODE = 'PS409', DETAIL = known.conflict::text;
            END IF;
            ids[known.index] := known.outbox_id;
            are_new[known.index] := known.is_new;
            conflicts[known.index] := known.conflict;
        END LOOP;
        UPDATE penstock.participant_outbox_sequences AS s
        SET next_sequence_id = s.next_sequence_id - unused.numbers
        FROM (
            SELECT g.participant_id, count(*) AS numbers
            FROM unnest(participant_ids, are_new) AS g (participant_id, is_new)
            WHERE NOT g.is_new
            GROUP BY g.participant_id
        ) AS unused
        WHERE s.participant_id = unused.participant_id;
        -- A conflict leaves nothing of a participant that has no instruction.
        DELETE FROM penstock.participant_outbox_sequences AS s
        WHERE s.participant_id = ANY (participant_ids) AND s.next_sequence_id = 1;
    END IF;

    IF true = ANY (are_new) THEN
        SELECT array_agg(s.sequence_id ORDER BY s.index) INTO sequence_ids
        FROM (
            SELECT g.index, CASE WHEN g.is_new THEN taken.first_sequence_id - 1
                + row_number() OVER (PARTITION BY g.participant_id, g.is_new ORDER BY g.index)
                END AS sequence_id
            FROM unnest(participant_ids, are_new) WITH ORDINALITY AS g (participant_id, is_new, index)
            LEFT JOIN unnest(locked, firsts) AS taken (participant_id, first_sequence_id)
                ON taken.participant_id = g.participant_id
        ) AS s;

        WITH accepted AS MATERIALIZED (
            SELECT g.*, row_number() OVER (ORDER BY g.index) AS place
            FROM unnest(
                ids, are_new, sequence_ids, instruction_ids, participant_ids, idempotency_keys,
                rail_types, payloads, amounts, next_attempt_ats, whos
            ) WITH ORDINALITY
                AS g (outbox_id, is_new, sequence_id, instruction_id, participant_id, idempotency_key,
                    rail_type, payload, amount, next_attempt_at, who, index)
            WHERE g.is_new
        ), listed AS MATERIALIZED (
            SELECT array_agg(jsonb_build_object('outbox_id', outbox_id) ORDER BY place) AS payloads,
                array_agg(next_attempt_at ORDER BY place) AS due_ats,
                array_agg(participant_id ORDER BY place) AS order_keys
            FROM accepted
        ), item AS MATERIALIZED (
            SELECT enqueued.index AS place, enqueued.item_id
            FROM listed
            CROSS JOIN LATERAL penstock.enqueue_many(
                'penstock.outbox', listed.payloads, NULL, listed.due_ats, listed.order_keys, NULL,
                send_instructions.at, 'outbox') AS enqueued
        )
        INSERT INTO penstock.outbox_instruction (
            outbox_id, item_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type,
            payload, amount, currency, created_at, created_by)
        SELECT accepted.outbox_id, item.item_id, accepted.instruction_id, accepted.participant_id,
            accepted.sequence_id, accepted.idempotency_key, accepted.rail_type, accepted.payload,
            accepted.amount, accepted.payload ->> 'currency',
            send_instructions.at, coalesce(accepted.who, send_instructions.who)
        FROM accepted JOIN item USING (place);

        PERFORM pg_notify('outbox_pending', 'new_work');
    END IF;

    RETURN QUERY
    SELECT g.index, g.outbox_id, coalesce(g.sequence_id, (
            SELECT i.sequence_id FROM penstock.outbox_instruction AS i WHERE i.outbox_id = g.outbox_id
        )), g.is_new, g.conflict
    FROM unnest(ids, sequence_ids, are_new, conflicts) WITH ORDINALITY
        AS g (outbox_id, sequence_id, is_new, conflict, index);
END $$;
