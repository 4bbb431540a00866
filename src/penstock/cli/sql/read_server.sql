-- Version, clock and durability of the server, for `penstock doctor`; works without the schema.
-- `reset_val` is what sessions start with: this one has changed its own synchronous_commit if it
-- was off.
SELECT current_setting('server_version') AS version,
    current_setting('server_version_num')::integer AS version_number,
    clock_timestamp() AS now,
    ARRAY(
        SELECT name FROM pg_settings
        WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit') AND reset_val = 'off'
        ORDER BY name
    ) AS unsafe;
