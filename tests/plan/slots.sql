-- A burst of 300,000 for one instant, and 100,000 slots apart from each other.
DO $$
BEGIN
    FOR chunk IN 0..59 LOOP
        PERFORM penstock.assign_slots(
            'default',
            ARRAY(SELECT 'burst-' || chunk * 5000 + n FROM generate_series(1, 5000) AS n),
            array_fill(date_trunc('day', now()) + interval '40 days', ARRAY[5000]));
    END LOOP;
    FOR chunk IN 0..19 LOOP
        PERFORM penstock.assign_slots(
            'default',
            ARRAY(SELECT 'apart-' || chunk * 5000 + n FROM generate_series(1, 5000) AS n),
            ARRAY(
                SELECT date_trunc('day', now()) + interval '50 days'
                    + (chunk * 5000 + n) * interval '10 seconds'
                FROM generate_series(1, 5000) AS n));
    END LOOP;
END $$;
