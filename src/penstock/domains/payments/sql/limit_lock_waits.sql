-- Let the statements of this transaction wait for a lock for a limited time.
SELECT set_config('lock_timeout', $1::text, true);
