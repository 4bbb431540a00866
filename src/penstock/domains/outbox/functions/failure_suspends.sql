-- Applies however an instruction fails: by its rail, by a person who resolves or rejects it. One that is
-- skipped lets the next one follow.
CREATE OR REPLACE TRIGGER failure_suspends
AFTER INSERT ON penstock.outbox_attempt
FOR EACH ROW
WHEN (NEW.state = 'FAILED' AND NEW.error_code IS DISTINCT FROM 'SKIPPED')
EXECUTE FUNCTION penstock.suspend_after_failure();
