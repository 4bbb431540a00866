-- Record who changed what. Never updated, never deleted.
INSERT INTO penstock.audit (audited_at, who, action, subject, before, after)
VALUES (now(), $1, $2, $3, $4::jsonb, $5::jsonb);
