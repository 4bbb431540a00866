-- How many payments were executed: their instructions are with the outbox.
SELECT count(*) FROM penstock.payment WHERE accepted_at IS NOT NULL;
