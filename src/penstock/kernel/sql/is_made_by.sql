-- Whether key $1 is key $2, or was made by it, or by a key that was made by it, and so on.
WITH RECURSIVE line AS (
    SELECT key_id, created_by FROM penstock.api_key WHERE key_id = $1
    UNION
    SELECT maker.key_id, maker.created_by
    FROM line JOIN penstock.api_key AS maker ON maker.key_id = line.created_by
)
SELECT EXISTS (SELECT FROM line WHERE key_id = $2);
