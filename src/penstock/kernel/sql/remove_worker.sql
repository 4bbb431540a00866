-- A worker has stopped.
DELETE FROM penstock.worker WHERE name = $1;
