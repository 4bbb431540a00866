-- Write how attempts ended for recipients, each under the token of the lease that its mail was claimed
-- with: without the lease nothing of that mail is written. A recipient that has a result keeps it. An
-- address that does not exist is suppressed in the same transaction. Returns the mails that were written.
CREATE OR REPLACE FUNCTION penstock.record_mail_results(results jsonb, at timestamptz DEFAULT now())
RETURNS SETOF bigint
LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH given AS MATERIALIZED (
        SELECT * FROM jsonb_to_recordset(record_mail_results.results) AS g (
            mail_id bigint, token bigint, recipient_no smallint, result text, class text, phase text,
            code smallint, enhanced text, reply text, relay text, suppresses text)
    ), fenced AS MATERIALIZED (
        -- Locked, so that the sweeper gives no lease back between this check and the commit.
        SELECT lease.token, lease.item_ids
        FROM penstock.lease
        WHERE token = ANY (ARRAY(SELECT DISTINCT token FROM given))
        ORDER BY token
        FOR KEY SHARE
    ), valid AS MATERIALIZED (
        SELECT given.* FROM given JOIN fenced USING (token)
        WHERE given.mail_id = ANY (fenced.item_ids)
    ), written AS (
        INSERT INTO penstock.mail_result (
            mail_id, recipient_no, result, class, phase, code, enhanced, reply, relay, token, at)
        SELECT mail_id, recipient_no, result, class, phase, code, enhanced, left(reply, 500), relay, token,
            record_mail_results.at
        FROM valid
        ORDER BY mail_id, recipient_no
        ON CONFLICT DO NOTHING
    ), suppressed AS (
        INSERT INTO penstock.mail_suppression (
            address, reason, expires_at, mail_id, created_at, created_by)
        SELECT DISTINCT ON (suppresses) suppresses, 'hard_bounce', NULL::timestamptz, mail_id,
            record_mail_results.at, 'worker'
        FROM valid
        WHERE suppresses IS NOT NULL
        ORDER BY suppresses, mail_id
        ON CONFLICT DO NOTHING
    )
    SELECT DISTINCT mail_id FROM valid;
END $$;
