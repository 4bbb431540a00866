-- Accept mails, given as JSON documents, for one of the two lanes of mail, in the caller's
-- transaction. Returns one row per position; is_new is false where the key is already known. Raises
-- as enqueue_many, and PS409 with the field `bulk` for a key that a mail in the other lane has.
-- The item carries a hash of the document, so that a key with another content is a conflict. What a
-- template was rendered to is not part of it: a repeat finds its mail although the template has a
-- new version.
CREATE OR REPLACE FUNCTION penstock.send_mails(lane text, mails jsonb[], at timestamptz DEFAULT now())
RETURNS TABLE (index bigint, mail_id bigint, is_new boolean)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    payloads jsonb[];
    keys text[];
    due_ats timestamptz[];
    not_afters timestamptz[];
    accepted_ids bigint[];
    are_new boolean[];
BEGIN
    SELECT array_agg(jsonb_build_object('hash', penstock.mail_hash(mail)) ORDER BY index),
        array_agg(mail ->> 'key' ORDER BY index),
        array_agg((mail ->> 'not_before')::timestamptz ORDER BY index),
        array_agg((mail ->> 'not_after')::timestamptz ORDER BY index)
    INTO payloads, keys, due_ats, not_afters
    FROM unnest(send_mails.mails) WITH ORDINALITY AS given (mail, index);

    -- Sorted, so that two producers with the same keys cannot deadlock.
    INSERT INTO penstock.mail_key (key)
    SELECT DISTINCT key FROM unnest(keys) AS given (key) WHERE key IS NOT NULL ORDER BY key
    ON CONFLICT DO NOTHING;

    SELECT array_agg(enqueued.item_id ORDER BY enqueued.index),
        array_agg(enqueued.is_new ORDER BY enqueued.index)
    INTO accepted_ids, are_new
    FROM penstock.enqueue_many(
        send_mails.lane, payloads, keys, due_ats, NULL, not_afters, send_mails.at, 'mail') AS enqueued;
    PERFORM penstock.mail_check_keys(send_mails.lane, keys, payloads, are_new);

    RETURN QUERY
    WITH accepted AS MATERIALIZED (
        SELECT index, item_id, is_new
        FROM unnest(accepted_ids, are_new) WITH ORDINALITY AS a (item_id, is_new, index)
    ), stored AS (
        INSERT INTO penstock.mail (
            id, accepted_at, lane, sender, sender_name, recipients, addresses, reply_to, subject, text,
            html, headers, tags, attachments, template, template_version, language, relay,
            is_unsubscribable, overrides_suppression)
        SELECT accepted.item_id, send_mails.at, send_mails.lane, mail #>> '{from,address}',
            coalesce(mail #>> '{from,name}', ''), mail -> 'recipients',
            ARRAY(
                SELECT lower(recipient #>> '{address,address}')
                FROM jsonb_array_elements(mail -> 'recipients') WITH ORDINALITY AS r (recipient, place)
                ORDER BY place),
            coalesce(mail -> 'reply_to', '[]'), mail ->> 'subject', mail ->> 'text', mail ->> 'html',
            coalesce(mail -> 'headers', '{}'),
            ARRAY(SELECT jsonb_array_elements_text(coalesce(mail -> 'tags', '[]'))),
            coalesce(mail -> 'attachments', '[]'), mail ->> 'template',
            (mail ->> 'template_version')::integer, mail ->> 'language', mail ->> 'relay',
            coalesce((mail ->> 'unsubscribe')::boolean, false),
            coalesce((mail ->> 'override_suppression')::boolean, false)
        FROM unnest(send_mails.mails) WITH ORDINALITY AS given (mail, index)
        JOIN accepted USING (index)
        WHERE accepted.is_new
    )
    SELECT accepted.index, accepted.item_id, accepted.is_new FROM accepted;
END $$;
