-- A view cannot see that its rows are selected FOR UPDATE, and PostgreSQL would lock what is under it:
-- a claim on events would seem to work and claim nothing. A sequence is a relation of one
-- row that cannot be locked. Joined into the views, it makes such a claim fail with an error that
-- names it, so its name says what to use instead.
CREATE SEQUENCE penstock.run_penstock_worker;
