-- The groups that domains are in, other than $1.
SELECT domain, group_name
FROM penstock.mail_domain_group
WHERE domain = ANY ($2::text[]) AND group_name <> $1
ORDER BY domain;
