-- A key stands for one mail, in whichever lane. The kernel keeps keys for each lane; a row here is
-- inserted first, so that of two transactions with one key and different lanes the second one waits for
-- the first, and then finds its key. Keys of earlier mails have no row until they are given again.
CREATE TABLE penstock.mail_key (
    key text COLLATE "C" PRIMARY KEY
);
