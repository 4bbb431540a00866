-- Accept one item and return its id, in the caller's transaction.
CREATE OR REPLACE FUNCTION penstock.enqueue(
    lane text,
    payload jsonb,
    key text DEFAULT NULL,
    due_at timestamptz DEFAULT NULL,
    order_key text DEFAULT NULL,
    not_after timestamptz DEFAULT NULL,
    owner text DEFAULT NULL,
    limit_keys jsonb DEFAULT NULL
) RETURNS bigint
LANGUAGE sql AS $$
    SELECT item_id
    FROM penstock.enqueue_many(
        lane, ARRAY[payload], ARRAY[key], ARRAY[due_at], ARRAY[order_key], ARRAY[not_after],
        owner => owner, limit_keys => ARRAY[limit_keys])
$$;
