-- Ask nothing about a released instruction for the duration $2.
UPDATE penstock.outbox_lookup
SET due_at = coalesce($3::timestamptz, now()) + $2::interval, releases = releases + 1
WHERE item_id = $1;
