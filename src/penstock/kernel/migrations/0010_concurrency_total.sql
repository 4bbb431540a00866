-- How many items all workers together may hold of a lane; NULL is no limit.
ALTER TABLE penstock.lane
    ADD COLUMN concurrency_total integer,
    ADD CONSTRAINT concurrency_total_is_sane CHECK (concurrency_total BETWEEN 1 AND 1000000);
