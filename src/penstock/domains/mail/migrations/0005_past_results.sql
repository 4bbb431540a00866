-- A replay sends again to the recipients for whom a mail has failed. What was known of them moves here,
-- so that mail_result has one row for each recipient, and nothing is forgotten.
CREATE TABLE penstock.mail_past_result (
    mail_id bigint NOT NULL,
    recipient_no smallint NOT NULL,
    result text COLLATE "C" NOT NULL,
    class text COLLATE "C" NOT NULL,
    phase text COLLATE "C",
    code smallint,
    enhanced text COLLATE "C",
    reply text,
    relay text COLLATE "C",
    token bigint NOT NULL,
    at timestamptz NOT NULL,
    replayed_at timestamptz NOT NULL,
    PRIMARY KEY (mail_id, recipient_no, replayed_at)
) PARTITION BY RANGE (mail_id);
CREATE TABLE penstock.mail_past_result_kept PARTITION OF penstock.mail_past_result DEFAULT;
SELECT penstock.add_daily_table('mail_past_result', 'mail_id');
