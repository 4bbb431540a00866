-- What an attempt records of an exception: its class and place, or its message too. Messages may
-- contain values that must not be stored, so a lane has to ask for them.
ALTER TABLE penstock.lane
    ADD COLUMN error_detail text NOT NULL DEFAULT 'class',
    ADD CONSTRAINT error_detail_is_known CHECK (error_detail IN ('class', 'message'));
