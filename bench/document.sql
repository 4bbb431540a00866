-- The peer of the slot bars: the algorithm of the rate limiter document, "Payments Rate Limiter",
-- as one PL/pgSQL function. Tables, columns and indexes are the document's, and so are the
-- phases: idempotency, first window, frontier-tracked find and lock, extension by up to two
-- chunks of a hundred windows.
--
-- It is written to be fast within that design. Duplicates are met with ON CONFLICT DO NOTHING
-- and not with exception blocks, which would cost a subtransaction each. A chunk is one INSERT
-- and not a hundred. The config comes as arguments, since the document's server has it in a cache.
-- The server's `firstWindowFull` map is a setting of the session.

CREATE TABLE rl_event_wndw_config (
    rl_wndw_config_id varchar(50) CONSTRAINT rl_event_wndw_config_pk PRIMARY KEY,
    wndw_config_nm varchar(128) NOT NULL,
    wndw_max_event_ct integer NOT NULL,
    wndw_size_iso_dur_tx varchar(25) NOT NULL,
    config_eff_strt_dt timestamptz NOT NULL,
    act_in smallint NOT NULL,
    creat_ts timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX rl_event_wndw_config_i01x ON rl_event_wndw_config (wndw_config_nm, act_in);

CREATE TABLE rl_wndw_ct (
    wndw_strt_ts timestamptz CONSTRAINT rl_wndw_ct_pk PRIMARY KEY,
    slot_ct integer NOT NULL,
    creat_ts timestamptz NOT NULL
);
CREATE INDEX rl_wndw_ct_i01x ON rl_wndw_ct (wndw_strt_ts, slot_ct);

CREATE TABLE rl_event_slot_dtl (
    wndw_slot_id varchar(50) CONSTRAINT rl_event_slot_dtl_pk PRIMARY KEY,
    event_id varchar(50) NOT NULL,
    req_ts timestamptz NOT NULL,
    wndw_strt_ts timestamptz NOT NULL,
    computed_sched_ts timestamptz NOT NULL,
    rl_wndw_config_id varchar(50) NOT NULL,
    creat_ts timestamptz NOT NULL DEFAULT now()
);
CREATE UNIQUE INDEX rl_event_slot_dtl_iux ON rl_event_slot_dtl (event_id);
CREATE INDEX rl_event_slot_dtl_i01x ON rl_event_slot_dtl (wndw_strt_ts);
CREATE INDEX rl_event_slot_dtl_i02x ON rl_event_slot_dtl (creat_ts);

CREATE TABLE rl_wndw_frontier_trk (
    req_ts timestamptz NOT NULL,
    wndw_end_ts timestamptz NOT NULL,
    creat_ts timestamptz NOT NULL,
    CONSTRAINT rl_wndw_frontier_trk_pk PRIMARY KEY (req_ts, wndw_end_ts)
);

INSERT INTO rl_event_wndw_config
    (rl_wndw_config_id, wndw_config_nm, wndw_max_event_ct, wndw_size_iso_dur_tx,
     config_eff_strt_dt, act_in)
VALUES ('config-1', 'default', 100, 'PT4S', now(), 1);

-- Returns the scheduled instant, or NULL for what the document answers with 503.
CREATE FUNCTION assign_slot(
    v_event_id text,
    v_requested_at timestamptz,
    v_config_id text,
    v_max integer,
    v_size interval
) RETURNS timestamptz
LANGUAGE plpgsql AS $$
DECLARE
    c_chunk CONSTANT integer := 100;
    c_chunks_max CONSTANT integer := 2;
    v_size_s double precision := extract(epoch FROM v_size);
    v_requested_s double precision := extract(epoch FROM v_requested_at);
    v_aligned_s double precision := floor(v_requested_s / v_size_s) * v_size_s;
    v_elapsed_s double precision := v_requested_s - v_aligned_s;
    v_aligned_at timestamptz := to_timestamp(v_aligned_s);
    v_first_max integer := floor(v_max * (v_size_s - v_elapsed_s) / v_size_s);
    v_full_name text := 'rl.full_' || v_aligned_s::bigint;
    v_scheduled_at timestamptz;
    v_window_at timestamptz;
    v_search_at timestamptz;
    v_end_at timestamptz;
    v_chunk_end_at timestamptz;
    v_chunk_no integer := 0;
    v_count integer;
BEGIN
    -- Phase 0: idempotency.
    SELECT computed_sched_ts INTO v_scheduled_at FROM rl_event_slot_dtl
    WHERE event_id = v_event_id;
    IF FOUND THEN
        RETURN v_scheduled_at;
    END IF;

    -- Phase 1: the first window, with proportional capacity and constrained jitter.
    IF current_setting(v_full_name, true) IS NULL THEN
        INSERT INTO rl_wndw_ct (wndw_strt_ts, slot_ct, creat_ts) VALUES (v_aligned_at, 0, now())
        ON CONFLICT DO NOTHING;
        SELECT slot_ct INTO v_count FROM rl_wndw_ct WHERE wndw_strt_ts = v_aligned_at
        FOR UPDATE SKIP LOCKED;
        IF FOUND AND v_count < v_first_max THEN
            v_window_at := v_aligned_at;
            v_scheduled_at := v_aligned_at
                + make_interval(secs => v_elapsed_s + random() * (v_size_s - v_elapsed_s));
        ELSIF FOUND THEN
            PERFORM set_config(v_full_name, '1', false);
        END IF;
    END IF;

    -- Phase 2: from the second window up to the frontier, then chunk by chunk beyond it.
    IF v_window_at IS NULL THEN
        SELECT max(wndw_end_ts) INTO v_end_at FROM rl_wndw_frontier_trk
        WHERE req_ts = v_aligned_at;
        v_search_at := v_aligned_at + v_size;
        IF v_end_at IS NULL THEN
            v_end_at := v_search_at + c_chunk * v_size;
            PERFORM provision_chunk(v_aligned_at, v_search_at, v_end_at, v_size);
        END IF;
        <<search>>
        LOOP
            -- Find the earliest window with room, without a lock; then lock exactly that one.
            SELECT wndw_strt_ts INTO v_window_at FROM rl_wndw_ct
            WHERE wndw_strt_ts = (
                SELECT wndw_strt_ts FROM rl_wndw_ct
                WHERE wndw_strt_ts >= v_search_at AND wndw_strt_ts < v_end_at AND slot_ct < v_max
                ORDER BY wndw_strt_ts
                FETCH FIRST 1 ROW ONLY
            ) AND slot_ct < v_max
            FOR UPDATE SKIP LOCKED;
            EXIT search WHEN FOUND;
            -- The scout: is there none, or is somebody else holding it?
            SELECT wndw_strt_ts INTO v_window_at FROM rl_wndw_ct
            WHERE wndw_strt_ts >= v_search_at AND wndw_strt_ts < v_end_at AND slot_ct < v_max
            ORDER BY wndw_strt_ts
            FETCH FIRST 1 ROW ONLY;
            IF FOUND THEN
                v_search_at := v_window_at + v_size;
                CONTINUE search;
            END IF;
            IF v_chunk_no = c_chunks_max THEN
                RETURN NULL;
            END IF;
            v_chunk_no := v_chunk_no + 1;
            v_search_at := v_end_at;
            v_end_at := v_search_at + c_chunk * v_size;
            PERFORM provision_chunk(v_aligned_at, v_search_at, v_end_at, v_size);
        END LOOP;
        v_scheduled_at := v_window_at + make_interval(secs => random() * v_size_s);
    END IF;

    -- Claim: a concurrent call for the same event may have been first, and then its slot counts.
    INSERT INTO rl_event_slot_dtl
        (wndw_slot_id, event_id, req_ts, wndw_strt_ts, computed_sched_ts, rl_wndw_config_id)
    VALUES
        (uuidv7()::text, v_event_id, v_requested_at, v_window_at, v_scheduled_at, v_config_id)
    ON CONFLICT (event_id) DO NOTHING;
    IF NOT FOUND THEN
        SELECT computed_sched_ts INTO v_scheduled_at FROM rl_event_slot_dtl
        WHERE event_id = v_event_id;
        RETURN v_scheduled_at;
    END IF;
    UPDATE rl_wndw_ct SET slot_ct = slot_ct + 1 WHERE wndw_strt_ts = v_window_at;
    RETURN v_scheduled_at;
END
$$;

-- Make the windows [v_from_at, v_end_at) unless the last one is there, and move the frontier.
CREATE FUNCTION provision_chunk(
    v_aligned_at timestamptz, v_from_at timestamptz, v_end_at timestamptz, v_size interval
) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM rl_wndw_ct WHERE wndw_strt_ts = v_end_at - v_size) THEN
        INSERT INTO rl_wndw_ct (wndw_strt_ts, slot_ct, creat_ts)
        SELECT window_at, 0, now()
        FROM generate_series(v_from_at, v_end_at - v_size, v_size) AS window_at
        ON CONFLICT DO NOTHING;
    END IF;
    INSERT INTO rl_wndw_frontier_trk (req_ts, wndw_end_ts, creat_ts)
    VALUES (v_aligned_at, v_end_at, now())
    ON CONFLICT DO NOTHING;
END
$$;
