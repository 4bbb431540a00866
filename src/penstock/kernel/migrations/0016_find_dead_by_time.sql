-- A domain looks for the items of its lanes that have died since it last looked.
CREATE INDEX dead_by_time ON penstock.dead (lane_id, died_at, id);
