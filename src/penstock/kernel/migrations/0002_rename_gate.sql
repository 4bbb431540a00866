-- A database from before lane_pacing had its name has the table `gate`, and constraints named after
-- it. The name said nothing, and the limits of endpoints are gates too. In a new database there is
-- nothing to rename.
DO $$
DECLARE
    found record;
BEGIN
    IF to_regclass('penstock.gate') IS NULL THEN
        RETURN;
    END IF;
    ALTER TABLE penstock.gate RENAME TO lane_pacing;
    FOR found IN SELECT conname FROM pg_constraint WHERE conrelid = 'penstock.lane_pacing'::regclass
    LOOP
        EXECUTE format(
            'ALTER TABLE penstock.lane_pacing RENAME CONSTRAINT %I TO %I',
            found.conname, replace(found.conname, 'gate_', 'lane_pacing_'));
    END LOOP;
END $$;
