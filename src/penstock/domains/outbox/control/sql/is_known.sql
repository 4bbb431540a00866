-- Whether there is such a rail, or a participant that has sent an instruction.
SELECT CASE $1::text
    WHEN 'rail' THEN EXISTS (SELECT FROM penstock.outbox_rail WHERE rail_type = $2)
    WHEN 'participant' THEN EXISTS (
        SELECT FROM penstock.participant_outbox_sequences WHERE participant_id = $2)
    ELSE true
END;
