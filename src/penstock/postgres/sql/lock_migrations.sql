-- Wait until no other process migrates. A session lock: it spans the transactions of all files.
SELECT pg_advisory_lock($1);
