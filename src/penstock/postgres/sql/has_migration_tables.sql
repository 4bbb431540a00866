-- Whether both migration tables exist; the second one is younger.
SELECT to_regclass('penstock.migration') IS NOT NULL
    AND to_regclass('penstock.function_version') IS NOT NULL;
