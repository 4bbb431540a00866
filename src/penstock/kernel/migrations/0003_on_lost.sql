-- What becomes of an item whose worker died: retried, or held because it may have been executed.
-- A lease of a lane that holds lists the items that have started; NULL in all other leases.
ALTER TABLE penstock.lane
    ADD COLUMN on_lost text NOT NULL DEFAULT 'retry',
    ADD CONSTRAINT on_lost_is_known CHECK (on_lost IN ('retry', 'hold'));

ALTER TABLE penstock.lease ADD COLUMN started_ids bigint[];
