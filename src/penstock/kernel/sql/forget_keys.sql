-- Delete the order keys of an empty lane: those that a dead item blocks, and the vacated ones.
WITH looked_at AS (
    DELETE FROM penstock.vacated_key WHERE lane_id = $1
)
DELETE FROM penstock.active_key WHERE lane_id = $1;
