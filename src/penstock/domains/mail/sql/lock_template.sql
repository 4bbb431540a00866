-- Wait for another new version of the same template; the statement after this one sees it.
SELECT pg_advisory_xact_lock(hashtextextended('mail template ' || $1::text || ' ' || $2::text, 0));
