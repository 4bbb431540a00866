-- Examine up to $1 attachments that nobody has given for $2 days. One that a kept mail lists is
-- marked as used today, and examined again as many days later; the others are deleted. Returns how
-- many. Locked, so that a mail that gives an attachment again waits for this, and stores it again.
WITH examined AS MATERIALIZED (
    SELECT hash
    FROM penstock.mail_blob
    WHERE last_used_on < (coalesce($3::timestamptz, now()) AT TIME ZONE 'UTC')::date - $2::integer
    ORDER BY last_used_on
    LIMIT $1
    FOR UPDATE SKIP LOCKED
), found AS MATERIALIZED (
    SELECT hash, EXISTS (
        SELECT FROM penstock.mail
        WHERE attachments <> '[]'
            AND attachments @> jsonb_build_array(jsonb_build_object('hash', encode(hash, 'hex')))
    ) AS is_used
    FROM examined
), kept AS (
    UPDATE penstock.mail_blob
    SET last_used_on = (coalesce($3::timestamptz, now()) AT TIME ZONE 'UTC')::date
    FROM found
    WHERE mail_blob.hash = found.hash AND found.is_used
), gone AS (
    DELETE FROM penstock.mail_blob USING found
    WHERE mail_blob.hash = found.hash AND NOT found.is_used
)
SELECT count(*) AS examined, count(*) FILTER (WHERE NOT is_used) AS removed FROM found;
