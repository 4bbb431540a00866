-- The lanes of built-in domains begin with `penstock.`, so that no lane of a user can have the name of
-- one. Items, attempts and leases refer to a lane by its number, so they keep their lane.
WITH renamed AS (
    UPDATE penstock.lane
    SET name = 'penstock.' || name, owner = 'webhooks'
    WHERE name IN ('webhooks', 'webhooks.ordered', 'webhooks.replay')
    RETURNING name
)
INSERT INTO penstock.audit (audited_at, who, action, subject, before, after)
SELECT now(), 'migration', 'lane.changed', name,
    jsonb_build_object('name', substr(name, length('penstock.') + 1)),
    jsonb_build_object('name', name)
FROM renamed;
