-- The session's staging table for COPY: a temporary table writes no WAL.
CREATE TEMPORARY TABLE IF NOT EXISTS penstock_staged (
    index integer NOT NULL,
    payload jsonb NOT NULL,
    key text,
    due_at timestamptz,
    order_key text,
    not_after timestamptz,
    limit_keys jsonb
) ON COMMIT DELETE ROWS;
