-- Return many UUIDs of version 7 with one call: one by one, with uuid_v7, each call costs as well.
CREATE OR REPLACE FUNCTION penstock.uuids_v7(count integer) RETURNS uuid[]
LANGUAGE plpgsql VOLATILE PARALLEL SAFE AS $$
BEGIN
    IF current_setting('server_version_num')::integer >= 180000 THEN
        RETURN ARRAY(SELECT uuidv7() FROM generate_series(1, uuids_v7.count));
    END IF;
    RETURN ARRAY(
        SELECT penstock.uuid_v7_at(clock_timestamp()) FROM generate_series(1, uuids_v7.count));
END $$;
