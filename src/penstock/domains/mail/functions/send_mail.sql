-- Accept one mail in the caller's transaction, and return its id. Addresses are `ada@example.org`
-- or `Ada <ada@example.org>`. An attachment is {"hash", "filename", "content_type", "content_id"},
-- its hash from penstock.put_mail_blob. What SQL cannot check is checked before the mail is sent:
-- it fails then, with the field and the reason.
CREATE OR REPLACE FUNCTION penstock.send_mail(
    sender text,
    recipients text[],
    subject text,
    text text DEFAULT NULL,
    html text DEFAULT NULL,
    cc text[] DEFAULT '{}',
    bcc text[] DEFAULT '{}',
    reply_to text[] DEFAULT '{}',
    headers jsonb DEFAULT '{}',
    tags text[] DEFAULT '{}',
    attachments jsonb DEFAULT '[]',
    key text DEFAULT NULL,
    not_before timestamptz DEFAULT NULL,
    not_after timestamptz DEFAULT NULL,
    relay text DEFAULT NULL,
    bulk boolean DEFAULT false,
    override_suppression boolean DEFAULT false
) RETURNS bigint
LANGUAGE sql AS $$
    SELECT mail_id
    FROM penstock.send_mails(
        CASE WHEN bulk THEN 'penstock.mail.bulk' ELSE 'penstock.mail' END,
        ARRAY[jsonb_strip_nulls(jsonb_build_object(
            'from', penstock.mail_address(sender, 'sender'),
            'recipients', coalesce((
                SELECT jsonb_agg(
                    jsonb_build_object('kind', kind, 'address', penstock.mail_address(
                        address, format('%s[%s]', field, place)))
                    ORDER BY rank, place)
                FROM (VALUES (1, 'to', 'recipients', recipients), (2, 'cc', 'cc', cc), (3, 'bcc', 'bcc', bcc))
                    AS listed (rank, kind, field, addresses)
                CROSS JOIN LATERAL unnest(addresses) WITH ORDINALITY AS given (address, place)), '[]'),
            'reply_to', coalesce((
                SELECT jsonb_agg(penstock.mail_address(address, format('reply_to[%s]', place)) ORDER BY place)
                FROM unnest(reply_to) WITH ORDINALITY AS given (address, place)), '[]'),
            'subject', subject, 'text', text, 'html', html, 'headers', headers,
            'tags', to_jsonb(tags), 'attachments', attachments, 'relay', relay,
            'key', key, 'not_before', not_before, 'not_after', not_after,
            'override_suppression', nullif(override_suppression, false)))])
$$;
