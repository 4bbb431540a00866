-- Those of the rows $1 that were sealed one by one after a restore.
SELECT id
FROM penstock.outbox_seal AS s
CROSS JOIN LATERAL unnest(s.attempt_ids) AS id
WHERE s.kind = 'restored' AND id = ANY ($1::uuid[]);
