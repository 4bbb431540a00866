-- Set what a failed instruction does to its participant.
INSERT INTO penstock.outbox_failure_policy (scope, name, policy) VALUES ($1, $2, $3)
ON CONFLICT (scope, name) DO UPDATE SET policy = excluded.policy;
