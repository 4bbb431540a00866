-- Drop the keys of an empty lane: what is left are those that a dead item blocks.
DELETE FROM penstock.active_key WHERE lane_id = $1;
