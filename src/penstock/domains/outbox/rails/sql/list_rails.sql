-- Rails by their type.
SELECT rail_type, adapter, config, sealed_secret, sealed_result_secret, code_set, destination_scheme,
    timeout, concurrency_max, updated_at, promises_since
FROM penstock.outbox_rail
ORDER BY rail_type;
