-- What all mails of a lane share: the salt of Message-IDs, and how often a mail is tried.
SELECT salt, (SELECT max_attempts FROM penstock.lane WHERE name = $1) AS attempts_max
FROM penstock.mail_database;
