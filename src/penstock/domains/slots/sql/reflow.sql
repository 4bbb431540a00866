-- Reassign a pool's future slots under its present rule, or count the moves in a dry run.
SELECT * FROM penstock.reflow_slots($1, $2, $3, $4, $5);
