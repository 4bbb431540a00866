-- Wait for the claims of this lane that are under way, and let no new one in until we commit.
SELECT lane.* FROM penstock.lane WHERE name = $1 FOR NO KEY UPDATE;
