-- Ask for a sign of life on a connection that only listens.
SELECT 1;
