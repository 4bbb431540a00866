-- Append one seal to the chain and return its number. The caller holds the lock of the chain, and has
-- set the columns that say what is sealed; number, instant and hashes are set here.
CREATE OR REPLACE FUNCTION penstock.add_outbox_seal(made penstock.outbox_seal) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    head penstock.outbox_seal;
BEGIN
    SELECT * INTO head FROM penstock.outbox_seal ORDER BY seal_no DESC LIMIT 1;
    made.seal_no := coalesce(head.seal_no, 0) + 1;
    made.sealed_at := clock_timestamp();
    made.previous_hash := coalesce(head.hash, sha256('penstock outbox'));
    made.hash := penstock.outbox_seal_hash(made);
    INSERT INTO penstock.outbox_seal SELECT (made).*;
    RETURN made.seal_no;
END $$;
