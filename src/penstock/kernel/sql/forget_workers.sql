-- Delete the rows of workers that ended without a clean stop, and were not seen since.
DELETE FROM penstock.worker WHERE seen_at < coalesce($1::timestamptz, now()) - $2::interval;
