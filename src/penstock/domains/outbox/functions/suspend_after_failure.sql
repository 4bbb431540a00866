-- Suspend the participant of a failed instruction, if its policy says so. An operator resumes it.
CREATE OR REPLACE FUNCTION penstock.suspend_after_failure() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO penstock.outbox_suspension (participant_id, reason, who, at, outbox_id)
    SELECT instruction.participant_id, 'instruction ' || instruction.instruction_id || ' failed',
        'outbox', NEW.created_at, NEW.outbox_id
    FROM penstock.outbox_instruction AS instruction
    WHERE instruction.outbox_id = NEW.outbox_id AND 'suspend' = (
        SELECT policy FROM penstock.outbox_failure_policy
        WHERE (scope, name) IN (('participant', instruction.participant_id),
            ('rail', instruction.rail_type), ('all', '*'))
        ORDER BY array_position(ARRAY['participant', 'rail', 'all'], scope)
        LIMIT 1)
    ON CONFLICT (participant_id) DO UPDATE SET outbox_id = excluded.outbox_id;
    RETURN NULL;
END $$;
