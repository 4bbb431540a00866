-- Create a new version of a pool's rule.
SELECT penstock.set_slot_config(
    $1, $2, $3, $4, $5, $6::jsonb, $7,
    $8::timestamptz[], $9::timestamptz[], $10::date[], $11::timestamptz[], $12, $13, $14);
