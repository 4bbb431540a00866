-- What a rail says after the call: which instructions it has to be asked about and when, and what it
-- has reported by itself.

-- One row for each instruction that a rail has to be asked about. `unknown`: a held one that may have
-- been paid. `settlement`: a dispatched one that is settled or returned later. `attempt` is the one in
-- question: a row of an earlier attempt is out of date. `left_at`: since when only a person can decide.
-- A process that asks moves `due_at`, so that no other asks at the same time.
CREATE TABLE penstock.outbox_lookup (
    item_id bigint PRIMARY KEY,
    attempt integer NOT NULL,
    rail_type text COLLATE "C" NOT NULL,
    purpose text COLLATE "C" NOT NULL,
    due_at timestamptz NOT NULL,
    since timestamptz NOT NULL,
    looks integer NOT NULL DEFAULT 0,
    left_at timestamptz,
    CONSTRAINT purpose_is_known CHECK (purpose IN ('unknown', 'settlement'))
) WITH (fillfactor = 70);
CREATE INDEX outbox_lookup_due ON penstock.outbox_lookup (due_at);

-- What a rail has reported, once for each status. A report may come before the answer to the call
-- that it is about; it is then applied later, and `due_at` is when to try.
CREATE TABLE penstock.outbox_result (
    outbox_id uuid NOT NULL,
    status text COLLATE "C" NOT NULL,
    rail_code text COLLATE "C",
    rail_reference text,
    occurred_at timestamptz NOT NULL,
    received_at timestamptz NOT NULL,
    due_at timestamptz NOT NULL,
    applied_at timestamptz,
    PRIMARY KEY (outbox_id, status),
    CONSTRAINT status_is_known CHECK (status IN ('paid', 'settled', 'returned', 'refused'))
);
CREATE INDEX outbox_result_unapplied ON penstock.outbox_result (due_at) WHERE applied_at IS NULL;

-- A report names the instruction by the rail's own reference.
CREATE INDEX ix_attempts_by_reference ON penstock.outbox_attempt (rail_reference)
    WHERE rail_reference IS NOT NULL;
