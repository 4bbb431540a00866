-- Lay a pool's future slots out anew, or count what that would move.
SELECT * FROM penstock.reflow_slots($1, $2, $3, $4, $5);
