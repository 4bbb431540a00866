-- How many rows the seals cover whose rows are still there.
SELECT coalesce(sum(row_count), 0)::bigint
FROM penstock.outbox_seal
WHERE attempt_ids IS NOT NULL AND kind <> 'dropped';
