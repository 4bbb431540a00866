-- Create or replace a rail. A secret that is not given stays.
INSERT INTO penstock.outbox_rail AS rail (
    rail_type, adapter, config, sealed_secret, sealed_result_secret, code_set, destination_scheme,
    timeout, concurrency_max, updated_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, now())
ON CONFLICT (rail_type) DO UPDATE SET
    adapter = excluded.adapter, config = excluded.config,
    sealed_secret = coalesce(excluded.sealed_secret, rail.sealed_secret),
    sealed_result_secret = coalesce(excluded.sealed_result_secret, rail.sealed_result_secret),
    code_set = excluded.code_set, destination_scheme = excluded.destination_scheme,
    timeout = excluded.timeout, concurrency_max = excluded.concurrency_max,
    updated_at = excluded.updated_at;
