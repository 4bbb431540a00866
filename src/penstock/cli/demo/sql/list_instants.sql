-- When each payment was to be executed, and when it was, in seconds. On Temporal the rail may be faster
-- than the step that ends the execution, and that instant is then missing.
SELECT extract(epoch FROM scheduled_at)::float8 AS planned,
    extract(epoch FROM accepted_at)::float8 AS executed
FROM penstock.payment;
