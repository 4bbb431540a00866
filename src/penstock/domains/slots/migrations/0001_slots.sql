-- Slot pools. A pool is a named set of windows with one rule; the rule is kept in versions. Each
-- window of a rule has as many cells as its capacity; a slot is an event's cell, for ever.
-- replaces: 0001_slots, 0002_functions, 0003_assign, 0004_reflow, 0005_lanes, 0006_views
-- replaces: 0007_assign_many

CREATE TABLE penstock.slot_pool (
    pool_id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text COLLATE "C" NOT NULL UNIQUE,
    -- Of the active version, where every assignment reads it: no time further ahead may be asked.
    horizon interval NOT NULL DEFAULT '366 days',
    -- Windows before this instant may hold slots that are not on the present rule's cells: booked
    -- under an older rule, or over capacity.
    mixed_until timestamptz NOT NULL DEFAULT '-infinity',
    CONSTRAINT pool_name_is_short CHECK (length(name) BETWEEN 1 AND 128)
);

CREATE TABLE penstock.slot_config (
    config_id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    pool_id integer NOT NULL,
    version integer NOT NULL,
    max_per_window integer NOT NULL,
    window_size interval NOT NULL,
    spacing text NOT NULL,
    horizon interval NOT NULL,
    calendar jsonb,
    cut_off_policy text,
    effective_at timestamptz NOT NULL,
    created_at timestamptz NOT NULL,
    created_by text NOT NULL,
    is_active boolean NOT NULL,
    UNIQUE (pool_id, version),
    CONSTRAINT max_per_window_is_sane CHECK (max_per_window BETWEEN 1 AND 1000000),
    CONSTRAINT window_size_is_sane
        CHECK (window_size BETWEEN interval '1 millisecond' AND interval '1 day'),
    -- Two slots of one pool never share a microsecond.
    CONSTRAINT max_per_window_fits_the_window
        CHECK (max_per_window <= extract(epoch FROM window_size) * 1000000),
    CONSTRAINT spacing_is_known CHECK (spacing IN ('even', 'random')),
    CONSTRAINT horizon_is_sane CHECK (horizon BETWEEN interval '1 day' AND interval '3660 days'),
    CONSTRAINT cut_off_policy_is_known
        CHECK (cut_off_policy IN ('next_open_window', 'reject', 'overbook')),
    CONSTRAINT cut_off_policy_goes_with_a_calendar
        CHECK ((calendar IS NULL) = (cut_off_policy IS NULL))
);
CREATE UNIQUE INDEX slot_config_one_active ON penstock.slot_config (pool_id) WHERE is_active;

-- Where a pool has cells: one row for an open end, one per opening period with a calendar. Cells are
-- numbered on from stretch to stretch, so that closed time has no numbers. `base` is the number that
-- the stretch's first cell would have if its rule had held since 1970.
CREATE TABLE penstock.slot_stretch (
    pool_id integer NOT NULL,
    first_cell bigint NOT NULL,
    last_cell bigint NOT NULL,
    base bigint NOT NULL,
    starts_at timestamptz NOT NULL,
    ends_at timestamptz NOT NULL,
    window_us bigint NOT NULL,
    capacity integer NOT NULL,
    config_id integer NOT NULL,
    spacing text NOT NULL,
    cut_off_policy text,
    day date,
    cut_off_at timestamptz,
    PRIMARY KEY (pool_id, first_cell),
    CONSTRAINT stretch_has_cells CHECK (last_cell >= first_cell),
    CONSTRAINT stretch_ends_after_start CHECK (ends_at > starts_at)
);
CREATE UNIQUE INDEX slot_stretch_by_end ON penstock.slot_stretch (pool_id, ends_at);

-- Taken cells as runs without a hole, never two side by side. The first free cell after any instant
-- is found in one step, however many are booked; a burst of a million is one row.
CREATE TABLE penstock.slot_run (
    pool_id integer NOT NULL,
    first_cell bigint NOT NULL,
    last_cell bigint NOT NULL,
    PRIMARY KEY (pool_id, first_cell),
    CONSTRAINT run_has_cells CHECK (last_cell >= first_cell)
) WITH (fillfactor = 50);

-- What was given. `position` is where in its window the cell begins, in microseconds: the same for
-- any capacity, so that a slot booked under 100 per window and one booked under 150 cannot share a
-- place. With even spacing it is also when: scheduled_at = window_at + position.
CREATE TABLE penstock.slot (
    requested_at timestamptz NOT NULL,
    scheduled_at timestamptz NOT NULL,
    window_at timestamptz NOT NULL,
    position bigint NOT NULL,
    created_at timestamptz NOT NULL,
    pool_id integer NOT NULL,
    config_id integer NOT NULL,
    event_id text COLLATE "C" NOT NULL,
    CONSTRAINT event_has_one_slot PRIMARY KEY (event_id),
    CONSTRAINT place_is_taken_once UNIQUE (pool_id, window_at, position),
    CONSTRAINT event_id_is_short CHECK (length(event_id) BETWEEN 1 AND 50),
    CONSTRAINT slot_follows_request CHECK (scheduled_at >= requested_at)
);
-- Slots are only ever appended, so that a few pages of summaries find the recent ones.
CREATE INDEX slot_by_creation ON penstock.slot USING brin (created_at);

CREATE TABLE penstock.slot_cancelled (
    cancelled_at timestamptz NOT NULL,
    requested_at timestamptz NOT NULL,
    scheduled_at timestamptz NOT NULL,
    created_at timestamptz NOT NULL,
    pool_id integer NOT NULL,
    config_id integer NOT NULL,
    event_id text COLLATE "C" NOT NULL,
    cancelled_by text NOT NULL
);
CREATE INDEX slot_cancelled_by_event ON penstock.slot_cancelled (event_id);

CREATE TABLE penstock.slot_reflow (
    reflow_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    pool_id integer NOT NULL,
    frozen_until timestamptz NOT NULL,
    moved bigint NOT NULL,
    created_at timestamptz NOT NULL,
    created_by text NOT NULL
);

CREATE TABLE penstock.slot_move (
    move_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    reflow_id bigint NOT NULL,
    moved_from timestamptz NOT NULL,
    moved_to timestamptz NOT NULL,
    event_id text COLLATE "C" NOT NULL
);

-- A lane may name a pool: its items are then due in slots of that pool.
ALTER TABLE penstock.lane
    DROP CONSTRAINT slot_pool_is_absent,
    ADD CONSTRAINT slot_pool_exists FOREIGN KEY (slot_pool) REFERENCES penstock.slot_pool (name);

-- The pool `default`: 100 slots per 4 seconds, evenly spaced, always open. Cells are numbered
-- from 1970 on; one lasts 40 ms, so a second has 25.
WITH pool AS (
    INSERT INTO penstock.slot_pool (name) VALUES ('default')
    RETURNING pool_id
), config AS (
    INSERT INTO penstock.slot_config (
        pool_id, version, max_per_window, window_size, spacing, horizon, effective_at, created_at,
        created_by, is_active)
    SELECT pool_id, 1, 100, interval '4 seconds', 'even', interval '366 days',
        to_timestamp(floor(extract(epoch FROM now()) / 4) * 4), now(), 'migration', true
    FROM pool
    RETURNING config_id, pool_id, effective_at AS starts_at
), cell AS (
    SELECT (extract(epoch FROM starts_at) * 25)::bigint AS base,
        (extract(epoch FROM timestamptz '2200-01-01Z') * 25)::bigint AS next_base
    FROM config
)
INSERT INTO penstock.slot_stretch (
    pool_id, first_cell, last_cell, base, starts_at, ends_at, window_us, capacity, config_id,
    spacing)
SELECT pool_id, 0, next_base - base - 1, base, starts_at, '2200-01-01Z', 4000000, 100, config_id,
    'even'
FROM config, cell;
