-- Relays in the order in which they are tried.
SELECT name, host, port, tls, username, sealed_password, priority, connections_max,
    messages_per_connection_max, idle_time, is_enabled, updated_at
FROM penstock.mail_relay
ORDER BY priority, name;
