-- Make the rest of the transaction look rows up one by one: a plan that is made for any number of rows
-- reads the whole archive for each step.
SELECT set_config('enable_seqscan', 'off', true), set_config('enable_hashjoin', 'off', true),
    set_config('enable_mergejoin', 'off', true);
