-- Check a connection that only listens.
SELECT 1;
