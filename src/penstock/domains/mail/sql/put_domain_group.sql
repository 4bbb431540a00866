-- Let a group have these domains and no others. Returns those that it has; a domain of another
-- group stays there.
WITH removed AS (
    DELETE FROM penstock.mail_domain_group WHERE group_name = $1 AND NOT domain = ANY ($2::text[])
)
INSERT INTO penstock.mail_domain_group AS known (domain, group_name)
SELECT unnest($2::text[]), $1
ON CONFLICT (domain) DO UPDATE SET group_name = excluded.group_name
    WHERE known.group_name = excluded.group_name
RETURNING domain;
