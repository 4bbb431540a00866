-- Version and clock of the server, for `penstock doctor`; works without the schema.
SELECT current_setting('server_version') AS version,
    current_setting('server_version_num')::integer AS version_number,
    clock_timestamp() AS now;
