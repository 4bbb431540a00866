-- The seals of the archive: a chain of hashes over its rows, which shows whether a row was changed,
-- removed or inserted later. And partitions by month, so that retention can drop old ones.

-- A row's place in the chain is (era, xid, attempt_id). Numbers of transactions belong to a cluster of
-- PostgreSQL: an archive that was restored into another one goes on in the next era, because there
-- they may start below those that are sealed. penstock.begin_outbox_era changes the default.
ALTER TABLE penstock.outbox_attempt ADD COLUMN era smallint NOT NULL DEFAULT 1;
-- Where the sealer goes on. Rows of one transaction are one entry of it.
CREATE INDEX ix_attempts_by_xid ON penstock.outbox_attempt (era, xid);

CREATE TABLE penstock.outbox_era (
    era smallint PRIMARY KEY,
    system_id bigint NOT NULL,
    began_at timestamptz NOT NULL
);
INSERT INTO penstock.outbox_era (era, system_id, began_at)
SELECT 1, system_identifier, now() FROM pg_control_system();

-- A seal covers the rows of one month behind the place of the seal before it, up to (era, last_xid,
-- last_attempt_id): `rows`; rows that were found without a seal after a restore: `restored`; or it
-- says that retention removed a month: `dropped`. The seals of a removed month lose their arrays and
-- keep their hashes. `rows_hash` is over the arrays, `hash` over all but the arrays and itself.
CREATE TABLE penstock.outbox_seal (
    seal_no bigint PRIMARY KEY,
    kind text COLLATE "C" NOT NULL,
    sealed_at timestamptz NOT NULL,
    month date NOT NULL,
    era smallint NOT NULL,
    last_xid xid8 NOT NULL,
    last_attempt_id uuid NOT NULL,
    row_count bigint NOT NULL,
    attempt_ids uuid[],
    row_hashes bytea[],
    rows_hash bytea NOT NULL,
    previous_hash bytea NOT NULL,
    hash bytea NOT NULL,
    CONSTRAINT seal_numbers_start_at_one CHECK (seal_no >= 1),
    CONSTRAINT kind_of_seal_is_known CHECK (kind IN ('rows', 'restored', 'dropped')),
    CONSTRAINT month_starts_on_its_first CHECK (extract(day FROM month) = 1)
);
-- Hashes and ids cannot be compressed.
ALTER TABLE penstock.outbox_seal ALTER COLUMN attempt_ids SET STORAGE EXTERNAL;
ALTER TABLE penstock.outbox_seal ALTER COLUMN row_hashes SET STORAGE EXTERNAL;
CREATE INDEX outbox_seal_by_month ON penstock.outbox_seal (month);
