-- Note that a relay fails, with its error; returns whether it did not before.
WITH earlier AS (
    SELECT is_failing FROM penstock.mail_relay_state WHERE relay = $1
)
INSERT INTO penstock.mail_relay_state AS known (relay, is_failing, last_error, changed_at)
VALUES ($1, true, left($2, 500), now())
ON CONFLICT (relay) DO UPDATE SET
    is_failing = true, last_error = excluded.last_error,
    changed_at = CASE WHEN known.is_failing THEN known.changed_at ELSE excluded.changed_at END
RETURNING NOT coalesce((SELECT is_failing FROM earlier), false);
