-- 60,000 mails to 20,000 recipients, every hundredth with a tag of its own kind. The first 10,000 are
-- dead, half of them with a result; 1,000 attachments, each listed by one mail.
SELECT penstock.put_mail_blob(convert_to('file ' || n, 'UTF8'), now() - interval '30 days')
FROM generate_series(1, 1000) AS n;
DO $$
BEGIN
    FOR chunk IN 0..59 LOOP
        PERFORM penstock.send_mails('penstock.mail', ARRAY(
            SELECT jsonb_build_object(
                'from', jsonb_build_object('address', 'shop@example.com', 'name', ''),
                'recipients', jsonb_build_array(jsonb_build_object(
                    'kind', 'to', 'address', jsonb_build_object(
                        'address', 'user' || n % 20000 || '@example.org', 'name', ''))),
                'subject', 'Order ' || n, 'text', repeat('x', 500),
                'tags', CASE WHEN n % 100 = 0
                    THEN jsonb_build_array('order', 'rare-' || n % 1000) ELSE '["order"]' END,
                'attachments', CASE WHEN n <= 1000 THEN jsonb_build_array(jsonb_build_object(
                    'hash', encode(sha256(convert_to('file ' || n, 'UTF8')), 'hex'),
                    'filename', 'a', 'content_type', 'text/plain')) ELSE '[]' END)
            FROM generate_series(chunk * 1000 + 1, chunk * 1000 + 1000) AS n));
    END LOOP;
END $$;
WITH died AS MATERIALIZED (
    DELETE FROM penstock.ready
    WHERE id IN (SELECT id FROM penstock.mail ORDER BY id LIMIT 10000)
    RETURNING id, lane_id
)
INSERT INTO penstock.dead (id, died_at, lane_id, attempt, forgiven, reason)
SELECT id, now() - interval '1 day' + id % 10000 * interval '1 second', lane_id, 1, 0, 'lost' FROM died;
INSERT INTO penstock.mail_result (mail_id, recipient_no, result, class, token, at)
SELECT id, 0, 'failed', 'permanent', 1, now() FROM penstock.dead
WHERE id % 2 = 0 AND lane_id = (SELECT lane_id FROM penstock.lane WHERE name = 'penstock.mail');
