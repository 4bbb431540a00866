-- Lock a pool until the transaction ends, so that its rule can be read and changed.
SELECT pool_id FROM penstock.slot_pool WHERE name = $1 FOR UPDATE;
