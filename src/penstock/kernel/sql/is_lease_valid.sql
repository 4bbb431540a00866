-- Whether a lease has not expired and still holds an item. The clock is read now, not at the start
-- of a transaction.
SELECT EXISTS (
    SELECT FROM penstock.lease
    WHERE token = $1
        AND expires_at > coalesce($3::timestamptz, clock_timestamp())
        AND item_ids @> ARRAY[$2::bigint]
);
