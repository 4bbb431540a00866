-- Applies however an instruction fails: by its rail, by a person who resolves or rejects it. One that is
-- skipped lets the next one follow. A row that moves to the partition of its month keeps the number of the
-- transaction that wrote it: its participant may have been resumed since.
CREATE OR REPLACE TRIGGER failure_suspends
AFTER INSERT ON penstock.outbox_attempt
FOR EACH ROW
WHEN (NEW.state = 'FAILED' AND NEW.error_code IS DISTINCT FROM 'SKIPPED'
    AND NEW.xid = pg_current_xact_id())
EXECUTE FUNCTION penstock.suspend_after_failure();
