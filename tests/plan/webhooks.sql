-- 2,000 subscriptions, each to a type of its own and 50,000 events, each of which is
-- wanted by one of them.
INSERT INTO penstock.webhook_subscription (
    subscription_id, tenant, url, event_types, description, state, profile, concurrency, timeout,
    created_at, updated_at)
SELECT 'sub_' || n, 'default', 'https://example.com/', ARRAY['kind-' || n || '.*'], '',
    'active', 'standard', 100, '15 seconds', now(), now()
FROM generate_series(1, 2000) AS n;
INSERT INTO penstock.webhook_pattern (tenant, pattern, subscription_no)
SELECT tenant, unnest(event_types), subscription_no FROM penstock.webhook_subscription;
DO $$
BEGIN
    FOR chunk IN 0..49 LOOP
        PERFORM penstock.accept_events(
            array_fill('default'::text, ARRAY[1000]),
            ARRAY(SELECT 'evt-' || chunk * 1000 + n FROM generate_series(1, 1000) AS n),
            ARRAY(SELECT 'kind-' || n || '.made' FROM generate_series(1, 1000) AS n),
            NULL,
            ARRAY(SELECT '{"n": ' || n || ', "text": "' || repeat('x', 200) || '"}'
                FROM generate_series(1, 1000) AS n),
            NULL);
    END LOOP;
END $$;
