-- Create a relay, or replace the one of this name; how the one before went is forgotten.
WITH forgotten AS (
    DELETE FROM penstock.mail_relay_state WHERE relay = $1
)
INSERT INTO penstock.mail_relay (
    name, host, port, tls, username, sealed_password, priority, connections_max,
    messages_per_connection_max, idle_time, is_enabled, updated_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, now())
ON CONFLICT (name) DO UPDATE SET
    host = excluded.host, port = excluded.port, tls = excluded.tls, username = excluded.username,
    sealed_password = excluded.sealed_password, priority = excluded.priority,
    connections_max = excluded.connections_max,
    messages_per_connection_max = excluded.messages_per_connection_max,
    idle_time = excluded.idle_time, is_enabled = excluded.is_enabled, updated_at = excluded.updated_at;
