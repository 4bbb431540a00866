-- Look whether the tables of payments are there, in a process that does not run the domain.
SELECT to_regclass('penstock.payment') IS NOT NULL;
