-- Allow the next process to migrate; a lost connection also releases the lock.
SELECT pg_advisory_unlock($1);
