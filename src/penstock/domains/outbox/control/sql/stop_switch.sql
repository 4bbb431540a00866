-- Stop everything, a rail or a participant; a repeat replaces the reason.
INSERT INTO penstock.outbox_switch (scope, name, reason, who, at) VALUES ($1, $2, $3, $4, now())
ON CONFLICT (scope, name) DO UPDATE SET reason = excluded.reason, who = excluded.who, at = excluded.at
RETURNING scope, name, reason, who, at;
