-- What stays of an instruction when a month of the archive with rows of it is dropped: without it, a failed
-- or returned instruction could never be sent under another key, and its state would be lost. `states`
-- are all that the archive had; the other columns are those of its last row, written at `last_at`.
CREATE TABLE penstock.outbox_kept_state (
    outbox_id uuid PRIMARY KEY,
    states text[] COLLATE "C" NOT NULL,
    is_contradicted boolean NOT NULL,
    state text COLLATE "C" NOT NULL,
    attempt_no integer NOT NULL,
    last_error text,
    rail_reference text,
    last_at timestamptz NOT NULL
);
