-- Workers claim mails as items; a mail is accepted by a function, and its state is derived.
CREATE OR REPLACE TRIGGER mail_outbox_is_read_only
INSTEAD OF INSERT OR UPDATE OR DELETE ON penstock.mail_outbox
FOR EACH ROW EXECUTE FUNCTION penstock.refuse_write('penstock.send_mail; penstock worker sends');
