-- Ask whether a lane is not paused.
SELECT enabled FROM penstock.lane WHERE name = $1;
