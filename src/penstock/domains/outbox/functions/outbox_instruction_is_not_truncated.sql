-- What is to be paid must not change after it was accepted, or approved.
CREATE OR REPLACE TRIGGER outbox_instruction_is_not_truncated
BEFORE TRUNCATE ON penstock.outbox_instruction
FOR EACH STATEMENT EXECUTE FUNCTION penstock.refuse_change();
