-- The kernel's tables. What is hot is narrow; what is history is partitioned by item id, and ids
-- are moved to a new block of 2^32 every day, so that a range of ids is a day and retention is a
-- DROP TABLE. No foreign keys: the kernel writes these tables together or not at all.
-- replaces: 0001_kernel, 0002_functions, 0003_slot_pools, 0004_daily_tables

CREATE SEQUENCE penstock.item_id;

CREATE TABLE penstock.lane (
    lane_id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text COLLATE "C" NOT NULL UNIQUE,
    enabled boolean NOT NULL DEFAULT true,
    batch_size integer NOT NULL DEFAULT 500,
    dispatch_interval interval NOT NULL DEFAULT '0',
    rate double precision,
    burst integer NOT NULL DEFAULT 1,
    jitter_window interval NOT NULL DEFAULT '0',
    pre_start_buffer interval NOT NULL DEFAULT '0',
    max_attempts integer NOT NULL DEFAULT 5,
    lease interval NOT NULL DEFAULT '30 seconds',
    concurrency integer NOT NULL DEFAULT 100,
    backoff_base interval NOT NULL DEFAULT '1 second',
    backoff_multiplier double precision NOT NULL DEFAULT 2,
    backoff_cap interval NOT NULL DEFAULT '1 hour',
    backoff_jitter double precision NOT NULL DEFAULT 0.1,
    backoff_first_exponent integer NOT NULL DEFAULT 0,
    ordering text NOT NULL DEFAULT 'none',
    on_dead_head text NOT NULL DEFAULT 'block',
    retention interval NOT NULL DEFAULT '30 days',
    payload_bytes_max integer NOT NULL DEFAULT 262144,
    version integer NOT NULL DEFAULT 1,
    slot_pool text COLLATE "C",
    CONSTRAINT name_is_a_slug CHECK (name ~ '^[a-z0-9][a-z0-9_.-]{0,62}$'),
    CONSTRAINT batch_size_is_sane CHECK (batch_size BETWEEN 1 AND 10000),
    CONSTRAINT dispatch_interval_is_sane
        CHECK (dispatch_interval BETWEEN interval '0' AND interval '1 day'),
    CONSTRAINT rate_is_sane CHECK (rate BETWEEN 0.001 AND 1000000),
    CONSTRAINT burst_is_sane CHECK (burst BETWEEN 1 AND 1000000),
    CONSTRAINT jitter_window_is_sane
        CHECK (jitter_window BETWEEN interval '0' AND interval '1 hour'),
    CONSTRAINT pre_start_buffer_is_sane
        CHECK (pre_start_buffer BETWEEN interval '0' AND interval '1 hour'),
    CONSTRAINT max_attempts_is_sane CHECK (max_attempts BETWEEN 1 AND 1000),
    CONSTRAINT lease_is_sane CHECK (lease BETWEEN interval '1 second' AND interval '1 day'),
    CONSTRAINT concurrency_is_sane CHECK (concurrency BETWEEN 1 AND 10000),
    CONSTRAINT backoff_base_is_sane
        CHECK (backoff_base > interval '0' AND backoff_base <= backoff_cap),
    CONSTRAINT backoff_cap_is_sane CHECK (backoff_cap <= interval '30 days'),
    CONSTRAINT backoff_multiplier_is_sane CHECK (backoff_multiplier BETWEEN 1 AND 100),
    CONSTRAINT backoff_jitter_is_a_fraction CHECK (backoff_jitter BETWEEN 0 AND 1),
    CONSTRAINT backoff_first_exponent_is_sane CHECK (backoff_first_exponent BETWEEN 0 AND 10),
    CONSTRAINT ordering_is_known CHECK (ordering IN ('none', 'per_key')),
    CONSTRAINT on_dead_head_is_known CHECK (on_dead_head IN ('block', 'park', 'skip')),
    CONSTRAINT retention_is_sane CHECK (retention BETWEEN interval '1 day' AND interval '100 years'),
    CONSTRAINT payload_bytes_max_is_sane CHECK (payload_bytes_max BETWEEN 2 AND 67108864),
    -- The migration of the slots replaces this by a foreign key to their pools.
    CONSTRAINT slot_pool_is_absent CHECK (slot_pool IS NULL)
);

-- What a claim changes about a lane, apart from its policy: a rate-limited lane writes here several
-- times a second, and the policy row should stay quiet.
CREATE TABLE penstock.lane_pacing (
    lane_id integer PRIMARY KEY,
    next_slot_at timestamptz NOT NULL DEFAULT '-infinity',
    next_cycle_at timestamptz NOT NULL DEFAULT '-infinity'
) WITH (fillfactor = 20);

CREATE TABLE penstock.item (
    id bigint PRIMARY KEY,
    due_at timestamptz NOT NULL,
    not_after timestamptz,
    created_at timestamptz NOT NULL,
    lane_id integer NOT NULL,
    key text COLLATE "C",
    order_key text COLLATE "C",
    payload jsonb NOT NULL,
    CONSTRAINT key_is_short CHECK (length(key) BETWEEN 1 AND 255),
    CONSTRAINT order_key_is_short CHECK (length(order_key) BETWEEN 1 AND 255),
    CONSTRAINT due_at_is_possible CHECK (due_at >= '1970-01-01Z' AND due_at < '2200-01-01Z'),
    CONSTRAINT not_after_follows_due_at CHECK (not_after >= due_at AND not_after < '2200-01-01Z')
) PARTITION BY RANGE (id);

CREATE TABLE penstock.attempt (
    item_id bigint NOT NULL,
    token bigint NOT NULL,
    claimed_at timestamptz NOT NULL,
    settled_at timestamptz NOT NULL,
    retry_at timestamptz,
    lane_id integer NOT NULL,
    duration_ms integer NOT NULL,
    attempt integer NOT NULL,
    outcome text COLLATE "C" NOT NULL,
    reason text,
    result jsonb,
    PRIMARY KEY (item_id, attempt),
    CONSTRAINT outcome_is_known
        CHECK (outcome IN ('done', 'retry', 'snooze', 'hold', 'dead', 'lost'))
) PARTITION BY RANGE (item_id);

-- Whatever no day's partition takes: rows that outlive their day when retention drops it.
CREATE TABLE penstock.item_kept PARTITION OF penstock.item DEFAULT;
CREATE TABLE penstock.attempt_kept PARTITION OF penstock.attempt DEFAULT;

-- A result that came after its lease was given to somebody else. It changes nothing.
CREATE TABLE penstock.late_result (
    item_id bigint NOT NULL,
    token bigint NOT NULL,
    settled_at timestamptz NOT NULL,
    attempt integer NOT NULL,
    outcome text COLLATE "C" NOT NULL,
    reason text,
    PRIMARY KEY (item_id, token)
);

-- The hot table; its only index is the order of the claim.
CREATE TABLE penstock.ready (
    due_at timestamptz NOT NULL,
    id bigint NOT NULL,
    lane_id integer NOT NULL,
    attempt integer NOT NULL,
    forgiven integer NOT NULL,
    PRIMARY KEY (lane_id, due_at, id)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_insert_scale_factor = 1);

CREATE TABLE penstock.lease (
    token bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    claimed_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    lane_id integer NOT NULL,
    worker text NOT NULL,
    item_ids bigint[] NOT NULL,
    attempts integer[] NOT NULL,
    forgiven integer[] NOT NULL,
    CONSTRAINT lease_expires_after_claim CHECK (expires_at > claimed_at),
    CONSTRAINT lease_holds_items CHECK (cardinality(item_ids) > 0)
);

-- A key with an item in ready, in a lease or held, or with a dead item that blocks it. Followers
-- lock the row when they park, so that nobody closes the key while one is on its way.
CREATE TABLE penstock.active_key (
    lane_id integer NOT NULL,
    order_key text COLLATE "C" NOT NULL,
    blocked_by bigint,
    PRIMARY KEY (lane_id, order_key)
);

CREATE TABLE penstock.parked (
    lane_id integer NOT NULL,
    order_key text COLLATE "C" NOT NULL,
    position bigint NOT NULL,
    id bigint NOT NULL,
    due_at timestamptz NOT NULL,
    attempt integer NOT NULL,
    forgiven integer NOT NULL,
    PRIMARY KEY (lane_id, order_key, position)
);

-- Keys whose head has ended while a producer was still parking behind it; the sweeper looks again.
CREATE TABLE penstock.vacated_key (
    lane_id integer NOT NULL,
    order_key text COLLATE "C" NOT NULL,
    PRIMARY KEY (lane_id, order_key)
);

CREATE TABLE penstock.held (
    id bigint PRIMARY KEY,
    held_at timestamptz NOT NULL,
    lane_id integer NOT NULL,
    attempt integer NOT NULL,
    forgiven integer NOT NULL,
    reason text NOT NULL
);
CREATE INDEX held_by_lane ON penstock.held (lane_id, id);

CREATE TABLE penstock.dead (
    id bigint PRIMARY KEY,
    died_at timestamptz NOT NULL,
    lane_id integer NOT NULL,
    attempt integer NOT NULL,
    forgiven integer NOT NULL,
    reason text NOT NULL
);
CREATE INDEX dead_by_lane ON penstock.dead (lane_id, id);

CREATE TABLE penstock.cancelled (
    id bigint PRIMARY KEY,
    cancelled_at timestamptz NOT NULL,
    lane_id integer NOT NULL
);

-- Due instants given to an item after it was accepted, other than by a retry: with them and the
-- attempts, the row in ready can be found by item id although its only index starts with due_at.
CREATE TABLE penstock.moved (
    item_id bigint NOT NULL,
    due_at timestamptz NOT NULL,
    PRIMARY KEY (item_id, due_at)
);

CREATE TABLE penstock.deadline (
    not_after timestamptz NOT NULL,
    item_id bigint NOT NULL,
    PRIMARY KEY (not_after, item_id)
);

-- Outlives the item: a key is taken for ever.
CREATE TABLE penstock.idempotency (
    item_id bigint NOT NULL,
    lane_id integer NOT NULL,
    key text COLLATE "C" NOT NULL,
    payload_hash bytea NOT NULL,
    PRIMARY KEY (lane_id, key)
);

CREATE TABLE penstock.replay (
    replay_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    lane_id integer NOT NULL,
    reason text,
    last_item_id bigint NOT NULL,
    next_item_id bigint NOT NULL DEFAULT 0,
    counted bigint NOT NULL,
    replayed bigint NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL,
    created_by text NOT NULL,
    finished_at timestamptz
);
CREATE INDEX replay_unfinished ON penstock.replay (replay_id) WHERE finished_at IS NULL;

CREATE TABLE penstock.audit (
    audit_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    audited_at timestamptz NOT NULL,
    who text NOT NULL,
    action text NOT NULL,
    subject text NOT NULL,
    before jsonb,
    after jsonb
);
CREATE INDEX audit_by_subject ON penstock.audit (subject, audit_id);

CREATE TABLE penstock.api_key (
    key_id text PRIMARY KEY,
    name text NOT NULL,
    scopes text[] NOT NULL,
    secret_hash bytea NOT NULL,
    created_at timestamptz NOT NULL,
    revoked_at timestamptz,
    CONSTRAINT scopes_are_known CHECK (scopes <@ ARRAY['produce', 'read', 'admin']),
    CONSTRAINT scopes_are_given CHECK (cardinality(scopes) > 0)
);

-- Tables that get a partition for every day. Their ids come from penstock.item_id, so that a range
-- of ids is the same day in all of them.
CREATE TABLE penstock.daily_table (
    name text PRIMARY KEY
);
INSERT INTO penstock.daily_table (name) VALUES ('item'), ('attempt');

-- The first two days; the sweeper opens the following ones with the function open_day. A migration
-- calls no function of its own package, because functions are applied after it and change later.
DO $$
DECLARE
    today date := (now() AT TIME ZONE 'UTC')::date;
    day date;
    parent text;
BEGIN
    FOR day, parent IN
        SELECT today + n, name FROM generate_series(0, 1) AS n, penstock.daily_table
    LOOP
        EXECUTE format(
            'CREATE TABLE penstock.%1$s_%2$s (LIKE penstock.%1$s INCLUDING ALL)',
            parent, to_char(day, 'YYYYMMDD'));
        EXECUTE format(
            'ALTER TABLE penstock.%1$s ATTACH PARTITION penstock.%1$s_%2$s '
            'FOR VALUES FROM (%3$s) TO (%4$s)',
            parent, to_char(day, 'YYYYMMDD'),
            (day - date '1970-01-01')::bigint << 32, (day + 1 - date '1970-01-01')::bigint << 32);
    END LOOP;
    PERFORM setval('penstock.item_id', (today - date '1970-01-01')::bigint << 32);
END $$;
