-- All groups of domains.
SELECT group_name AS name, array_agg(domain ORDER BY domain) AS domains
FROM penstock.mail_domain_group
GROUP BY group_name
ORDER BY group_name;
