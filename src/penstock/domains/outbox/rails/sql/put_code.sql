-- Create or replace a code, and return the class that it had. The lock makes two changes of one code
-- follow each other, so that the audit of each has the right class.
WITH before AS MATERIALIZED (
    SELECT class FROM penstock.outbox_code WHERE code_set = $1 AND code = $2 FOR UPDATE
), put AS (
    INSERT INTO penstock.outbox_code (code_set, code, class, meaning, source, updated_at)
    VALUES ($1, $2, $3, $4, $5, now())
    ON CONFLICT (code_set, code) DO UPDATE SET
        class = excluded.class, meaning = excluded.meaning, source = excluded.source,
        updated_at = excluded.updated_at
)
SELECT class FROM before;
