-- Give up a lock after a time, until the end of the transaction.
SELECT set_config('lock_timeout', (extract(epoch FROM $1::interval) * 1000)::integer::text, true);
