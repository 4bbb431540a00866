-- What is stopped, the latest first.
SELECT scope, name, reason, who, at FROM penstock.outbox_switch ORDER BY at DESC, scope, name;
