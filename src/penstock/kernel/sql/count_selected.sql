-- How many items a decision about many would meet.
SELECT count(*) FROM penstock.select_items($1, $2, $3, $4, $5, $6);
