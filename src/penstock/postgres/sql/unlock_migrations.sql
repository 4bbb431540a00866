-- Let the next process migrate; a connection that breaks lets go by itself.
SELECT pg_advisory_unlock($1);
