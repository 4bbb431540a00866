-- The folder of the server; nothing for an account that may not see it.
SELECT setting FROM pg_settings WHERE name = 'data_directory';
