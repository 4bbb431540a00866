-- Mails are kept as long as their items, by the retention of their lane; attachments, as long as a
-- kept mail lists them.
UPDATE penstock.daily_table SET item_column = 'id' WHERE name = 'mail';
UPDATE penstock.daily_table SET item_column = 'mail_id' WHERE name = 'mail_result';

-- Which mail lists an attachment; most mails have none.
CREATE INDEX mail_by_attachment ON penstock.mail USING gin (attachments jsonb_path_ops)
    WHERE attachments <> '[]';
CREATE INDEX mail_blob_by_day ON penstock.mail_blob (last_used_on);
