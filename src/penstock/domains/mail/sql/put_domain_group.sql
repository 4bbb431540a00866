-- Let a group have these domains and no others; a domain that was in another group leaves that one.
WITH removed AS (
    DELETE FROM penstock.mail_domain_group WHERE group_name = $1 AND NOT domain = ANY ($2::text[])
)
INSERT INTO penstock.mail_domain_group (domain, group_name)
SELECT unnest($2::text[]), $1
ON CONFLICT (domain) DO UPDATE SET group_name = excluded.group_name;
