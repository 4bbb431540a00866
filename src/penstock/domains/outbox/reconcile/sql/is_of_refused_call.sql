-- Ask whether a rail speaks of a call that it refused before another one was made.
SELECT penstock.outbox_is_of_refused_call($1, $2);
