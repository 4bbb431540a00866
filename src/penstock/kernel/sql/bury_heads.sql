-- The heads of these keys have died: block their keys or go on, as the lane's policy says.
SELECT penstock.bury_heads($1, $2, $3);
