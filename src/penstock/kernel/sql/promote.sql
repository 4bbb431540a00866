-- Promote the followers of keys whose head is done or cancelled.
SELECT penstock.promote($1, $2);
