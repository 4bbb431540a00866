-- The statement that appends our schema to the search path of this database, unless it is in there.
SELECT format(
    'ALTER DATABASE %I SET search_path = %s, penstock',
    current_database(), current_setting('search_path'))
WHERE 'penstock' <> ALL (string_to_array(replace(current_setting('search_path'), ' ', ''), ','));
