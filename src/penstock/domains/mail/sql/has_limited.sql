-- Whether there is something of this name that a limit can be of; addresses and domains need no
-- row.
SELECT CASE $1::text
    WHEN 'relay' THEN EXISTS (SELECT FROM penstock.mail_relay WHERE name = $2)
    WHEN 'group' THEN EXISTS (SELECT FROM penstock.mail_domain_group WHERE group_name = $2)
    ELSE true
END;
