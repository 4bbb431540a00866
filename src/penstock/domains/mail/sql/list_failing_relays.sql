-- Relays that took no mail when they were last tried, without those that are disabled or gone.
SELECT state.relay, state.last_error, state.changed_at
FROM penstock.mail_relay_state AS state
LEFT JOIN penstock.mail_relay AS relay ON relay.name = state.relay
WHERE state.is_failing AND coalesce(relay.is_enabled, state.relay = 'default')
ORDER BY state.relay;
