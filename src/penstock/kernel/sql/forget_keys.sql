-- Drop the keys of an empty lane: those that a dead item blocks, and those to be looked at again.
WITH looked_at AS (
    DELETE FROM penstock.vacated_key WHERE lane_id = $1
)
DELETE FROM penstock.active_key WHERE lane_id = $1;
