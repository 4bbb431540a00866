-- The server's clock, when the statement arrived and when it is answered.
SELECT extract(epoch FROM statement_timestamp())::float8 AS received_at,
    extract(epoch FROM clock_timestamp())::float8 AS answered_at;
