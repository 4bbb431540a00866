-- Set from when on the row of a rail covers the calls of attempts: at once if it is new, and 5 s after
-- a change of what decides where and how a call is made. A process uses a row for half a second after
-- its change; the rest is for a slow commit. A longer timeout only lengthens waits. The simulator gets
-- another address at each start, and keeps its ledger. A trigger, so that changes by hand count too.
CREATE OR REPLACE FUNCTION penstock.date_rail_promises() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    grace CONSTANT interval := '5 seconds';
BEGIN
    IF TG_OP = 'UPDATE' THEN
        IF NEW.adapter IS DISTINCT FROM OLD.adapter
            OR NEW.sealed_secret IS DISTINCT FROM OLD.sealed_secret
            OR NEW.timeout < OLD.timeout
            OR (NEW.config IS DISTINCT FROM OLD.config AND NOT (NEW.adapter = 'simulator'
                AND NEW.config - 'url' IS NOT DISTINCT FROM OLD.config - 'url'))
        THEN
            NEW.promises_since := clock_timestamp() + grace;
        ELSE
            NEW.promises_since := OLD.promises_since;
        END IF;
    ELSIF EXISTS (
        SELECT FROM penstock.audit
        WHERE subject = NEW.rail_type AND action = 'outbox_rail.removed' AND audited_at > now() - grace
    ) THEN
        -- A process may still use the row that was removed.
        NEW.promises_since := clock_timestamp() + grace;
    ELSE
        NEW.promises_since := clock_timestamp();
    END IF;
    RETURN NEW;
END $$;
