-- Who asks, and who may change the schema: its owner, or nobody yet if there is none.
SELECT
    current_user::text AS role,
    (SELECT pg_get_userbyid(nspowner)::text FROM pg_namespace WHERE nspname = 'penstock')
        AS schema_owner;
