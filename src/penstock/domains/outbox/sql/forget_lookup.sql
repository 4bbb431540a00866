-- Ask no more about an instruction; $2 NULL: whichever attempt is in question; $3 NULL: whatever was
-- asked about it.
DELETE FROM penstock.outbox_lookup
WHERE item_id = $1 AND attempt = coalesce($2::integer, attempt) AND purpose = coalesce($3::text, purpose);
