-- The contents of attachments.
SELECT encode(hash, 'hex') AS hash, content FROM penstock.mail_blob WHERE hash = ANY ($1::bytea[]);
