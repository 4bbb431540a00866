-- Ask whether workers claim a lane; a lane whose item type has a schedule on Temporal is claimed there.
SELECT NOT EXISTS (
    SELECT FROM penstock.payment_item_type WHERE lane = $1 AND engine = 'temporal_schedule'
);
