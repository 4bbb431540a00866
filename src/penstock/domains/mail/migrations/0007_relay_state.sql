-- Whether a relay takes mails: written when that changes, for people. Workers decide by their own gates.
CREATE TABLE penstock.mail_relay_state (
    relay text COLLATE "C" PRIMARY KEY,
    is_failing boolean NOT NULL,
    last_error text NOT NULL,
    changed_at timestamptz NOT NULL,
    CONSTRAINT last_error_is_short CHECK (length(last_error) <= 500)
);
