-- A refusal counts for the attempt that it came after: an instruction that was refused, released by a
-- person and accepted since can be refused again. The other statuses are kept once, with attempt 0.
-- `code_class` is what a report that has only a code says by it; NULL if the rail named the status.
ALTER TABLE penstock.outbox_result
    ADD COLUMN attempt integer NOT NULL DEFAULT 0,
    ADD COLUMN code_class text COLLATE "C",
    ADD CONSTRAINT code_class_is_known CHECK (code_class IN ('paid', 'terminal', 'retryable')),
    DROP CONSTRAINT outbox_result_pkey,
    ADD CONSTRAINT outbox_result_pkey PRIMARY KEY (outbox_id, status, attempt);
