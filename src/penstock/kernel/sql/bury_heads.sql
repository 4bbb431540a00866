-- Apply the lane's on_dead_head to keys whose head has died.
SELECT penstock.bury_heads($1, $2, $3);
