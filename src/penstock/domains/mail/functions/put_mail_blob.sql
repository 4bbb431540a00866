-- Keep the content of an attachment, and return its hash in hex; a known one is only marked as
-- used.
CREATE OR REPLACE FUNCTION penstock.put_mail_blob(content bytea, at timestamptz DEFAULT now())
RETURNS text
LANGUAGE sql AS $$
    INSERT INTO penstock.mail_blob AS known (hash, content, last_used_on)
    VALUES (sha256(put_mail_blob.content), put_mail_blob.content, (put_mail_blob.at AT TIME ZONE 'UTC')::date)
    ON CONFLICT (hash) DO UPDATE SET last_used_on = excluded.last_used_on
        WHERE known.last_used_on < excluded.last_used_on;
    SELECT encode(sha256(put_mail_blob.content), 'hex');
$$;
