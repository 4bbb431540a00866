-- A known event gets its slot again, whatever time or pool it is requested with; in a strict pool
-- another time or pool is a conflict. As with the horizon, the pool has the value of its active
-- version, where every assignment reads it.
ALTER TABLE penstock.slot_pool ADD COLUMN is_strict boolean NOT NULL DEFAULT false;
ALTER TABLE penstock.slot_config ADD COLUMN is_strict boolean NOT NULL DEFAULT false;
