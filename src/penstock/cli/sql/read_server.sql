-- What the doctor asks any PostgreSQL, with or without our schema.
SELECT current_setting('server_version') AS version,
    current_setting('server_version_num')::integer AS version_number,
    clock_timestamp() AS now;
