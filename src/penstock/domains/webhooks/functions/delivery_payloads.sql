-- Return the payloads of the items that carry deliveries: two numbers each.
CREATE OR REPLACE FUNCTION penstock.delivery_payloads(events bigint[], subscriptions integer[])
RETURNS jsonb[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT array_agg(
        jsonb_build_object('event', event_no, 'subscription', subscription_no) ORDER BY place)
    FROM unnest(events, subscriptions) WITH ORDINALITY AS d (event_no, subscription_no, place)
$$;
