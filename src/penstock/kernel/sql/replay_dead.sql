-- Retry dead items with a new set of attempts; no row if it is not dead or past its deadline.
SELECT id FROM penstock.replay_dead($1::bigint[], coalesce($2::timestamptz, now())) AS r (id);
