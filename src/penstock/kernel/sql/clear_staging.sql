-- Empty the staging table for the next chunk of the same transaction.
TRUNCATE pg_temp.penstock_staged;
