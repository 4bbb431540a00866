-- Return the hash of what a caller has asked for, without its key and its times.
CREATE OR REPLACE FUNCTION penstock.mail_hash(mail jsonb) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT encode(sha256(convert_to((mail - 'key' - 'not_before' - 'not_after' - CASE
        WHEN mail ? 'variables' THEN '{subject,text,html,template_version}'::text[]
        ELSE '{}'
    END)::text, 'UTF8')), 'hex')
$$;
