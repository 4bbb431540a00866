-- The instruction that a report of a rail is about: by its outbox_id, by the producer's ids, or by the
-- rail's reference; what it names besides must be true too. Two rows if the reference is not unique.
SELECT i.outbox_id, i.rail_type, i.amount, i.currency
FROM penstock.outbox_instruction AS i
WHERE i.outbox_id = ANY (ARRAY(
    SELECT $1::uuid WHERE $1 IS NOT NULL
    UNION
    SELECT k.outbox_id FROM penstock.outbox_idempotency AS k
    WHERE $1 IS NULL AND k.instruction_id = $2 AND k.idempotency_key = $3
    UNION
    SELECT a.outbox_id FROM penstock.outbox_attempt AS a
    WHERE $1 IS NULL AND $2 IS NULL AND a.rail_reference = $4
)) AND i.rail_type = $5
    AND ($2::text IS NULL OR (i.instruction_id, i.idempotency_key) = ($2, $3))
LIMIT 2;
