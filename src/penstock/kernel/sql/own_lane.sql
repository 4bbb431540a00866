-- Bring the owner and the guards of a lane up to what its domain declares.
UPDATE penstock.lane SET owner = $2, guards = $3::jsonb WHERE name = $1;
