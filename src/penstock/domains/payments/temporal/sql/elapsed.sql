-- Return the time since an instant, by the database's clock.
SELECT clock_timestamp() - $1::timestamptz;
