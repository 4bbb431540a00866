-- Accept mails, given as JSON documents, for one of the two lanes of mail, in the caller's transaction.
-- Returns one row per position; is_new is false where the key is already known. Raises as enqueue_many.
-- The item carries a hash of the document, so that a key with another content is a conflict. What a
-- template was rendered to is not part of it: a repeat finds its mail although the template has a new
-- version.
CREATE OR REPLACE FUNCTION penstock.send_mails(lane text, mails jsonb[], at timestamptz DEFAULT now())
RETURNS TABLE (index bigint, mail_id bigint, is_new boolean)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    payloads jsonb[];
    keys text[];
    due_ats timestamptz[];
    not_afters timestamptz[];
BEGIN
    SELECT array_agg(jsonb_build_object('hash', penstock.mail_hash(mail)) ORDER BY index),
        array_agg(mail ->> 'key' ORDER BY index),
        array_agg((mail ->> 'not_before')::timestamptz ORDER BY index),
        array_agg((mail ->> 'not_after')::timestamptz ORDER BY index)
    INTO payloads, keys, due_ats, not_afters
    FROM unnest(send_mails.mails) WITH ORDINALITY AS given (mail, index);

    RETURN QUERY
    WITH accepted AS MATERIALIZED (
        SELECT enqueued.index, enqueued.item_id, enqueued.is_new
        FROM penstock.enqueue_many(
            send_mails.lane, payloads, keys, due_ats, NULL, not_afters, send_mails.at,
            'mail') AS enqueued
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
