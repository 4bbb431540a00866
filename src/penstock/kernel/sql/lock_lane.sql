-- Lock the lane: waits for running claims, and blocks new ones until the commit.
SELECT lane.* FROM penstock.lane WHERE name = $1 FOR NO KEY UPDATE;
