-- The outbox: payment instructions, written once, and the archive of what was tried. An instruction is
-- an item of the kernel's lane penstock.outbox with the participant as order key; when it is tried,
-- and in which order, only the kernel knows. These tables outlive the lane's retention.

-- The next number of each participant's instructions; only bump_participant_outbox_seq changes it.
CREATE TABLE penstock.participant_outbox_sequences (
    participant_id text COLLATE "C" PRIMARY KEY,
    next_sequence_id bigint NOT NULL,
    CONSTRAINT numbers_start_at_one CHECK (next_sequence_id >= 1)
) WITH (fillfactor = 50);

-- The producer that inserts this row has the instruction; it stays for ever. It is inserted before a
-- number is taken, so that a conflict leaves no gap. `generation` counts the keys of an instruction:
-- the next one is accepted once the last has failed or was returned, and two producers cannot both
-- insert it.
CREATE TABLE penstock.outbox_idempotency (
    instruction_id text COLLATE "C" NOT NULL,
    idempotency_key text COLLATE "C" NOT NULL,
    generation integer NOT NULL,
    outbox_id uuid NOT NULL,
    payload_hash bytea NOT NULL,
    PRIMARY KEY (instruction_id, idempotency_key),
    CONSTRAINT keys_follow_each_other UNIQUE (instruction_id, generation),
    CONSTRAINT instruction_id_is_short CHECK (length(instruction_id) BETWEEN 1 AND 255),
    CONSTRAINT idempotency_key_is_short CHECK (length(idempotency_key) BETWEEN 1 AND 255)
);

-- `item_id` is the kernel's item. `payload` is the producer's; amount and currency are read from it.
CREATE TABLE penstock.outbox_instruction (
    outbox_id uuid PRIMARY KEY,
    item_id bigint NOT NULL,
    instruction_id text COLLATE "C" NOT NULL,
    participant_id text COLLATE "C" NOT NULL,
    sequence_id bigint NOT NULL,
    idempotency_key text COLLATE "C" NOT NULL,
    rail_type text COLLATE "C" NOT NULL,
    payload jsonb NOT NULL,
    amount numeric NOT NULL,
    currency text COLLATE "C" NOT NULL,
    created_at timestamptz NOT NULL,
    created_by text NOT NULL,
    CONSTRAINT item_has_one_instruction UNIQUE (item_id),
    CONSTRAINT sequence_is_continuous UNIQUE (participant_id, sequence_id),
    CONSTRAINT amount_is_above_zero CHECK (amount > 0),
    CONSTRAINT currency_has_three_letters CHECK (currency ~ '^[A-Z]{3}$'),
    CONSTRAINT rail_type_is_a_slug CHECK (rail_type ~ '^[a-z0-9][a-z0-9_.-]{0,62}$'),
    CONSTRAINT payload_is_small CHECK (octet_length(payload::text) <= 65536)
);

-- What happened: one row for each ending of an attempt and each later event, only inserted, by month.
-- The view payment_outbox_attempts adds the columns of the instruction, and what is in flight.
-- `xid` orders rows for sealing: all rows of transactions that ended are below the oldest open one.
CREATE TABLE penstock.outbox_attempt (
    attempt_id uuid NOT NULL,
    outbox_id uuid NOT NULL,
    attempt_no integer NOT NULL,
    state text COLLATE "C" NOT NULL,
    claimed_at timestamptz NOT NULL,
    completed_at timestamptz,
    rail_reference text,
    rail_code text COLLATE "C",
    error_code text COLLATE "C",
    error_message text,
    latency_ms integer,
    created_at timestamptz NOT NULL,
    token bigint,
    who text,
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    PRIMARY KEY (attempt_id, created_at),
    CONSTRAINT state_is_known CHECK (state IN ('DISPATCHED', 'RETRYABLE', 'UNKNOWN', 'ZOMBIE_REQUEUE',
        'FAILED', 'SETTLED', 'RETURNED')),
    CONSTRAINT message_is_short CHECK (length(error_message) <= 1000)
) PARTITION BY RANGE (created_at);
CREATE TABLE penstock.outbox_attempt_kept PARTITION OF penstock.outbox_attempt DEFAULT;
-- The index that the outbox which this replaces had under this name.
CREATE INDEX ix_attempts_by_outbox ON penstock.outbox_attempt (outbox_id, claimed_at DESC);

-- A view cannot see that its rows are selected FOR UPDATE. A sequence cannot be locked: joined into
-- payment_outbox_pending, it makes such a claim fail before anything is paid, and its name says what
-- dispatches.
CREATE SEQUENCE penstock.penstock_worker_dispatches;
