-- The same checks without patterns: PostgreSQL builds the automaton of a pattern anew for each row, which
-- took a tenth of the time of accepting an instruction.
ALTER TABLE penstock.outbox_instruction
    DROP CONSTRAINT currency_has_three_letters,
    DROP CONSTRAINT rail_type_is_a_slug,
    ADD CONSTRAINT currency_has_three_letters CHECK (
        length(currency) = 3 AND translate(currency, 'ABCDEFGHIJKLMNOPQRSTUVWXYZ', '') = ''),
    ADD CONSTRAINT rail_type_is_a_slug CHECK (
        length(rail_type) BETWEEN 1 AND 63
        AND translate(rail_type, 'abcdefghijklmnopqrstuvwxyz0123456789_.-', '') = ''
        AND left(rail_type, 1) NOT IN ('_', '.', '-'));
