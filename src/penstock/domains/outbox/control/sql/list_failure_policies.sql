-- What failed instructions do to their participants, where it was set.
SELECT scope, name, policy FROM penstock.outbox_failure_policy ORDER BY scope, name;
