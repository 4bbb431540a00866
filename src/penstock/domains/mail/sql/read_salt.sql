-- The part of every Message-ID that names this database.
SELECT salt FROM penstock.mail_database;
