-- What is to be paid must not change after it was accepted, or approved.
CREATE OR REPLACE TRIGGER outbox_instruction_is_append_only
BEFORE UPDATE OR DELETE ON penstock.outbox_instruction
FOR EACH ROW EXECUTE FUNCTION penstock.refuse_change();
