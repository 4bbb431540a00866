-- Return a UUID of version 7: the built-in one from PostgreSQL 18 on. plpgsql, because a body in SQL is
-- checked when it is created, and uuidv7 does not exist before.
CREATE OR REPLACE FUNCTION penstock.uuid_v7() RETURNS uuid
LANGUAGE plpgsql VOLATILE PARALLEL SAFE AS $$
BEGIN
    IF current_setting('server_version_num')::integer >= 180000 THEN
        RETURN uuidv7();
    END IF;
    RETURN penstock.uuid_v7_at(clock_timestamp());
END $$;
