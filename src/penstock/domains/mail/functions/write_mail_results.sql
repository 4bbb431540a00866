-- Write how attempts ended for recipients, each under the token of the lease that its mail was
-- claimed with. Without the lease only `sent` is written: the relay has accepted the message,
-- whoever holds the mail now, and the row keeps the next attempt from sending a second copy. A
-- recipient that has a result keeps it. An address that does not exist is suppressed in the same
-- transaction. Returns a row for each given one: whether the lease was valid, and whether the
-- result is new.
CREATE OR REPLACE FUNCTION penstock.write_mail_results(results jsonb, at timestamptz DEFAULT now())
RETURNS TABLE (mail_id bigint, recipient_no smallint, is_fenced boolean, is_new boolean)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH given AS MATERIALIZED (
        SELECT * FROM jsonb_to_recordset(write_mail_results.results) AS g (
            mail_id bigint, token bigint, recipient_no smallint, result text, class text, phase text,
            code smallint, enhanced text, reply text, relay text, suppresses text)
    ), fenced AS MATERIALIZED (
        -- Locked, so that the sweeper gives no lease back between this check and the commit.
        SELECT lease.token, lease.item_ids
        FROM penstock.lease
        WHERE token = ANY (ARRAY(SELECT DISTINCT token FROM given))
        ORDER BY token
        FOR KEY SHARE
    ), checked AS MATERIALIZED (
        SELECT given.*, coalesce(given.mail_id = ANY (fenced.item_ids), false) AS is_fenced
        FROM given LEFT JOIN fenced USING (token)
    ), written AS (
        INSERT INTO penstock.mail_result (
            mail_id, recipient_no, result, class, phase, code, enhanced, reply, relay, token, at)
        SELECT mail_id, recipient_no, result, class, phase, code, enhanced, left(reply, 500), relay, token,
            write_mail_results.at
        FROM checked
        -- Retention may have deleted the mail of a late result.
        WHERE is_fenced
            OR result = 'sent' AND EXISTS (SELECT FROM penstock.mail WHERE mail.id = checked.mail_id)
        ORDER BY mail_id, recipient_no
        ON CONFLICT DO NOTHING
        RETURNING mail_id, recipient_no
    ), suppressed AS (
        INSERT INTO penstock.mail_suppression (
            address, reason, expires_at, mail_id, created_at, created_by)
        SELECT DISTINCT ON (suppresses) suppresses, 'hard_bounce', NULL::timestamptz, mail_id,
            write_mail_results.at, 'worker'
        FROM checked
        WHERE is_fenced AND suppresses IS NOT NULL
        ORDER BY suppresses, mail_id
        ON CONFLICT DO NOTHING
    )
    SELECT checked.mail_id, checked.recipient_no, checked.is_fenced, written.mail_id IS NOT NULL
    FROM checked LEFT JOIN written USING (mail_id, recipient_no);
END $$;
